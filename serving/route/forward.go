package route

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/krait-ml/krait/serving/internal/api"
)

// mostAnswer is how many bytes an answer that is no stream, or one event of a stream, may have.
const mostAnswer = 64 << 20

// Headers that go from client to server, and back. Others are about one connection, or say more of a client
// than a server is to know.
var (
	thither = []string{"Authorization", "Content-Type", "Accept"}
	hither  = []string{"Content-Type", "Cache-Control", "X-Accel-Buffering", "X-Request-Id", "Retry-After", "Www-Authenticate", "Allow"}
)

// answer is what a machine answered.
type answer struct {
	status int
	header http.Header
	body   []byte        // whole, or the first event of a stream
	rest   *bufio.Reader // of a stream; else nil
	end    context.CancelCauseFunc
	ctx    context.Context
}

// ServeHTTP answers a request by another's answer.
func (r *Router) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/health":
		api.WriteJSON(w, http.StatusOK, status{"ok"})
	case "/ready":
		r.answerReady(w)
	case "/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenize", "/detokenize":
		r.route(w, q)
	default:
		coded(http.StatusNotFound, "unknown_url", "there is no %.20s %.100s", q.Method, q.URL.Path).Write(w)
	}
}

type status struct {
	Status string `json:"status"`
}

// answerReady says whether requests would find somebody.
func (r *Router) answerReady(w http.ResponseWriter) {
	r.mu.Lock()
	drains := r.drains
	r.mu.Unlock()
	switch {
	case drains:
		coded(http.StatusServiceUnavailable, "draining", "the router is being stopped").Write(w)
	case r.servers.ready() == 0:
		errNobody().Write(w)
	default:
		api.WriteJSON(w, http.StatusOK, status{"ready"})
	}
}

func errNobody() *api.Error {
	return coded(http.StatusServiceUnavailable, "no_server", "no server is ready")
}

// route sends a request on, and its answer back.
func (r *Router) route(w http.ResponseWriter, q *http.Request) {
	id, begun := api.NewID("route-"), time.Now()
	o := outcome{status: http.StatusOK}
	err := r.try(w, q, &o)
	if err != nil {
		o.status = err.Status
		if !o.begun {
			w.Header().Set("X-Request-Id", id)
			err.Write(w)
		}
	}
	code := ""
	if err != nil {
		code = *err.Code
	}
	r.figures.request(q.URL.Path, o)
	r.o.Log.Info("request", "id", id, "path", q.URL.Path, "status", o.status, "error", code, "machine", o.machine, "prefill", o.prefill,
		"tries", o.tries, "seconds", time.Since(begun).Seconds())
}

// outcome is how a request went.
type outcome struct {
	status           int
	machine, prefill string
	tries            int
	begun            bool // something was sent to the client
	first            time.Duration
}

// try sends a request to one machine, and to another if that fails before anything is sent back.
func (r *Router) try(w http.ResponseWriter, in *http.Request, o *outcome) *api.Error {
	if r.o.Local && !api.Local(in.Host, r.o.Hosts...) {
		return coded(http.StatusMisdirectedRequest, "wrong_host", "this router answers to IP addresses and to localhost, and was asked as %.100s: name it in --hosts", in.Host)
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	ctx, end := context.WithTimeout(in.Context(), r.o.Deadline)
	defer end()
	q, failure := r.read(ctx, w, in)
	if failure != nil {
		return failure
	}
	begun := time.Now()
	n := r.need(q)
	reads := n
	reads.tokens = 0
	prefill := (*held)(nil)
	if len(r.prefill.machines) > 0 && q.writes {
		prefill = r.prefill.take(reads, nil, begun)
		n.blocks, n.bytes = nil, 0 // who answers reads nothing
	}
	defer prefill.free()
	if prefill != nil {
		o.prefill = prefill.m.name
	}
	var tried []*machine
	var last *answer // that another may better
	var from *machine
	for o.tries < 2 {
		h := r.servers.take(n, tried, time.Now())
		if h == nil {
			break
		}
		o.tries++
		o.machine = h.m.name
		tried = append(tried, h.m)
		a, err := r.ask(q, h.m, o.prefill)
		if err == nil && !again(a.status) {
			o.first = time.Since(begun)
			prefill.free() // the prompt is read
			defer h.free()
			return r.pass(w, q, h.m, a, o)
		}
		h.free()
		switch {
		case ctx.Err() != nil:
			return q.over()
		case err == nil:
			last, from = a, h.m
		default:
			r.o.Log.Warn("a machine failed a request", "machine", h.m.name, "error", err)
		}
	}
	switch {
	case last != nil: // nobody knows better
		return r.pass(w, q, from, last, o)
	case o.tries == 0:
		return errNobody()
	}
	return coded(http.StatusBadGateway, "server_failed", "%d servers failed to answer", o.tries)
}

// over is the error of a request that has no time left, or no client.
func (q *request) over() *api.Error {
	if q.Context().Err() != nil {
		return coded(api.StatusGone, "cancelled", "the client has gone")
	}
	return coded(http.StatusGatewayTimeout, "timeout", "the request took longer than this router lets one take")
}

// again reports whether another machine may answer where one answered this: it has no room, or drains, or
// its step failed.
func again(status int) bool {
	return slices.Contains([]int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}, status)
}

// need is what a request has a machine do.
func (r *Router) need(q *request) need {
	if !q.writes {
		return need{}
	}
	tenant := q.Header.Get("Authorization") // caches keep tenants apart
	return need{blocks: blocks(r.seed, []byte(tenant), q.prompt), bytes: len(q.prompt), tokens: q.tokens}
}

// ask sends a request to a machine, and waits for what is to be sent back first. It ends when the
// machine is found to be gone.
func (r *Router) ask(q *request, m *machine, prefill string) (_ *answer, err error) {
	ctx, end := context.WithCancelCause(q.ctx)
	r.servers.mu.Lock()
	alive := m.alive
	r.servers.mu.Unlock()
	stop := context.AfterFunc(alive, func() { end(errGone) })
	context.AfterFunc(ctx, func() { stop() })
	defer func() {
		if err != nil {
			err = cmpCause(ctx, err)
			end(nil)
			if q.Context().Err() == nil {
				r.answered(m, false)
			}
		}
	}()
	out, err := http.NewRequestWithContext(ctx, q.Method, r.urls[m]+q.URL.Path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	copyHeader(out.Header, q.Header, thither)
	if prefill != "" {
		out.Header.Set("Krait-Prefill", prefill)
	}
	got, err := r.client.Do(out)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { got.Body.Close() })
	a := &answer{status: got.StatusCode, header: http.Header{}, end: end, ctx: ctx}
	copyHeader(a.header, got.Header, hither)
	if kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type")); kind == "text/event-stream" {
		a.rest = bufio.NewReaderSize(got.Body, 16<<10)
		if a.body, err = event(a.rest); err != nil {
			return nil, err
		}
		return a, nil
	}
	defer end(nil)
	if a.body, err = io.ReadAll(io.LimitReader(got.Body, mostAnswer+1)); err != nil {
		return nil, err
	}
	if len(a.body) > mostAnswer {
		return nil, fmt.Errorf("an answer of more than %d bytes", mostAnswer)
	}
	switch a.status {
	case http.StatusInternalServerError, http.StatusBadGateway:
		r.answered(m, false)
	case http.StatusServiceUnavailable:
		m.soon()
	}
	return a, nil
}

// cmpCause is why a context ended, if it did, else an error.
func cmpCause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

func copyHeader(to, from http.Header, names []string) {
	for _, n := range names {
		if v := from.Values(n); len(v) > 0 {
			to[n] = v
		}
	}
}

// answered counts how an answer went.
func (r *Router) answered(m *machine, ok bool) {
	r.servers.mu.Lock()
	ejected := m.answered(ok, time.Now(), r.o.EjectAfter, r.o.EjectFor)
	r.servers.mu.Unlock()
	if !ok {
		m.soon()
	}
	if ejected {
		r.o.Log.Warn("a machine is left out: its answers failed", "machine", m.name, "in a row", r.o.EjectAfter)
		r.figures.ejections.WithLabelValues(m.name).Inc()
	}
}

// pass sends an answer to the client.
func (r *Router) pass(w http.ResponseWriter, q *request, m *machine, a *answer, o *outcome) *api.Error {
	defer a.end(nil)
	if err := misconfigured(a); err != nil {
		r.o.Log.Error("servers and router name other machines that read prompts", "machine", m.name, "prefill", o.prefill)
		return err
	}
	copyHeader(w.Header(), a.header, hither)
	control := http.NewResponseController(w)
	send := func(data []byte) error {
		control.SetWriteDeadline(time.Now().Add(r.o.Stall))
		defer control.SetWriteDeadline(time.Time{}) // HTTP/2 would end the stream by it between two parts
		if _, err := w.Write(data); err != nil {
			return err
		}
		return control.Flush()
	}
	o.begun, o.status = true, a.status
	w.WriteHeader(a.status)
	data := a.body
	for {
		if send(data) != nil || q.Context().Err() != nil {
			return coded(api.StatusGone, "cancelled", "the client has gone, or takes nothing")
		}
		if a.rest == nil {
			break
		}
		var err error
		if data, err = event(a.rest); err == io.EOF && len(data) == 0 {
			break
		} else if err != nil {
			return r.lost(send, q, m, cmpCause(a.ctx, err))
		}
	}
	if !again(a.status) {
		r.answered(m, true)
	}
	return nil
}

// lost tells a client that its stream does not go on.
func (r *Router) lost(send func([]byte) error, q *request, m *machine, why error) *api.Error {
	if q.Context().Err() != nil {
		return q.over()
	}
	r.answered(m, false)
	r.figures.lost.WithLabelValues(m.name).Inc()
	r.o.Log.Warn("a machine was lost in the middle of an answer", "machine", m.name, "error", why)
	e := coded(http.StatusBadGateway, "server_lost", "the server was lost in the middle of the answer")
	if q.ctx.Err() != nil {
		e = q.over()
	}
	data, bad := json.Marshal(e.Body())
	if bad != nil {
		panic("BUG: " + bad.Error())
	}
	send(fmt.Appendf(nil, "data: %s\n\n", data))
	return e
}

// event reads a stream up to the end of an event, so that nothing is sent on of one that is cut
// off. At the end of the stream it is io.EOF, with no bytes unless an event is without its end.
func event(from *bufio.Reader) (data []byte, err error) {
	for {
		line, err := from.ReadSlice('\n')
		data = append(data, line...)
		switch {
		case len(data) > mostAnswer:
			return data, fmt.Errorf("an event of more than %d bytes", mostAnswer)
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return data, err
		case len(bytes.TrimRight(line, "\r\n")) == 0 && (len(data) == len(line) || data[len(data)-len(line)-1] == '\n'):
			return data, nil
		}
	}
}

// misconfigured is the error where a server does not know who is to read its prompt.
func misconfigured(a *answer) *api.Error {
	var e struct {
		Error struct{ Code, Message string }
	}
	if a.status != http.StatusBadRequest || json.Unmarshal(a.body, &e) != nil || e.Error.Code != "unknown_prefill" {
		return nil
	}
	return coded(http.StatusBadGateway, "unknown_prefill", "%s", e.Error.Message)
}

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
	*flight
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
	switch {
	case r.draining():
		errDraining().Write(w)
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
	// Also for a body that is refused, and then read to its end by net/http; a test may have none.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.o.SlowStart))
	switch {
	case r.o.Local && !api.Local(in.Host, r.o.Hosts...):
		return coded(http.StatusMisdirectedRequest, "wrong_host", "this router answers to IP addresses and to localhost, and was asked as %.100s: name it in --hosts", in.Host)
	case r.draining():
		return errDraining()
	}
	ctx, end := context.WithTimeout(in.Context(), r.o.Deadline)
	defer end()
	q, failure := r.read(ctx, w, in)
	if failure != nil {
		return failure
	}
	defer q.free()
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err := r.enter(q); err != nil {
		return err
	}
	defer r.leave(q)
	return r.find(w, q, o)
}

// find asks machines until one answers, two at most, and sends its answer back.
func (r *Router) find(w http.ResponseWriter, q *request, o *outcome) *api.Error {
	begun := time.Now()
	n := q.need
	prefill := (*held)(nil)
	if len(r.prefill.machines) > 0 && q.writes {
		reads := n
		reads.tokens = 0
		prefill = r.prefill.take(reads, nil, begun)
		n.blocks, n.bytes = nil, 0 // who answers reads nothing
	}
	defer prefill.free()
	if prefill != nil {
		o.prefill = prefill.m.name
	}
	r.retries.earn()
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
		if last != nil && last.status == http.StatusInternalServerError && err == nil && a.status < 400 {
			r.answered(from, false) // where another can, it is not for the request
		}
		final := err == nil && (o.tries == 2 || !again(a.status) || a.status == http.StatusInternalServerError && !r.retries.take())
		if final {
			o.first = time.Since(begun)
			prefill.free() // the prompt is read
			q.free()
			defer h.free()
			return r.pass(w, q, h.m, a, o)
		}
		h.free()
		switch {
		case q.ctx.Err() != nil:
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

// ask sends a request to a machine, and waits for what is to be sent back first. It ends when that
// machine answers neither checks nor the request.
func (r *Router) ask(q *request, m *machine, prefill string) (_ *answer, err error) {
	f := r.servers.fly(q.ctx, m)
	defer func() {
		if err != nil {
			err = cmpCause(f.ctx, err)
			f.end(nil)
			if q.Context().Err() == nil {
				r.answered(m, false)
			}
		}
	}()
	out, err := http.NewRequestWithContext(f.ctx, q.Method, r.urls[m]+q.URL.Path, nil)
	if err != nil {
		return nil, err
	}
	if n := len(q.bytes()); n > 0 {
		out.Body, out.ContentLength = q.reader(), int64(n)
		out.GetBody = func() (io.ReadCloser, error) { return q.reader(), nil }
	}
	copyHeader(out.Header, q.Header, thither)
	if prefill != "" {
		out.Header.Set("Krait-Prefill", prefill)
	}
	got, err := r.client.Do(out)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(f.ctx, func() { got.Body.Close() })
	a := &answer{status: got.StatusCode, header: http.Header{}, flight: f}
	copyHeader(a.header, got.Header, hither)
	from := heard{got.Body, f}
	if kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type")); kind == "text/event-stream" {
		a.rest = bufio.NewReaderSize(from, 16<<10)
		if a.body, err = event(a.rest); err != nil {
			return nil, err
		}
		return a, nil
	}
	defer f.end(nil)
	if a.body, err = io.ReadAll(io.LimitReader(from, mostAnswer+1)); err != nil {
		return nil, err
	}
	if len(a.body) > mostAnswer {
		return nil, fmt.Errorf("an answer of more than %d bytes", mostAnswer)
	}
	r.judge(m, a)
	return a, nil
}

// judge counts an answer against a machine where that failed. A status 500 may be due to the
// request, which a second answer shows; 504 with code timeout is a request that took longer than
// its server allows.
func (r *Router) judge(m *machine, a *answer) {
	if a.status < http.StatusInternalServerError {
		return
	}
	switch code := a.code(); {
	case a.status == http.StatusServiceUnavailable && (code == "draining" || code == "closing"):
		r.servers.mu.Lock()
		news, gone := m.checked(errNotReady), m.gone()
		r.servers.mu.Unlock()
		r.tell(m, news, gone, errNotReady)
		m.soon()
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout && code != "timeout":
		r.answered(m, false)
	}
}

// code is that of an answer which is an error of OpenAI's API.
func (a *answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	if json.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return e.Error.Code
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
	if a.status < 500 && a.status != http.StatusTooManyRequests {
		r.answered(m, true)
	}
	return nil
}

// lost tells a client that its stream does not go on.
func (r *Router) lost(send func([]byte) error, q *request, m *machine, why error) *api.Error {
	if q.Context().Err() != nil {
		return q.over()
	}
	if q.ctx.Err() == nil { // else the request took too long
		r.answered(m, false)
	}
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
	if a.status != http.StatusBadRequest || a.code() != "unknown_prefill" {
		return nil
	}
	return coded(http.StatusBadGateway, "unknown_prefill", "the server does not know the machine that this router names for reading prompts: give both the same --prefill")
}

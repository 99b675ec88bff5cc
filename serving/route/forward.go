package route

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/internal/api"
)

// mostAnswer bounds the bytes of an answer that is not streamed, and of one event of a stream.
const mostAnswer = 64 << 20

// Headers that the router forwards. Others belong to one connection, or would tell a server more
// about a client than it needs.
var (
	requestHeaders  = []string{"Authorization", "X-Api-Key", "Content-Type", "Accept"}
	responseHeaders = []string{"Content-Type", "Cache-Control", "X-Accel-Buffering", "Retry-After", "Www-Authenticate", "Allow", "Krait-Warning"}
)

// answer is a machine's answer.
type answer struct {
	status int
	header http.Header
	body   []byte        // whole, or the first event of a stream
	rest   *bufio.Reader // of a stream; else nil
	*flight
}

// ServeHTTP forwards a request to a server, and its answer to the client.
func (r *Router) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if short := q.URL.Path; slices.Contains([]string{"/completions", "/chat/completions", "/responses", "/models"}, short) { // as llama.cpp's
		q = q.Clone(q.Context())
		q.URL.Path = "/v1" + short
	}
	switch path := routed(q.URL.Path); path {
	case "/health":
		api.WriteJSON(w, http.StatusOK, status{"ok"})
	case "/ready":
		r.answerReady(w)
	case "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/models", modelPath, "/version", "/openapi.json", "/tokenize", "/detokenize":
		r.route(w, q, path)
	default:
		coded(http.StatusNotFound, "unknown_url", "unknown URL: %.20s %.100s", q.Method, q.URL.Path).Write(w)
	}
}

// modelPath is before the names of models.
const modelPath = "/v1/models/"

// routed returns the name that metrics and traces have for a path: clients choose names of models.
func routed(path string) string {
	if strings.HasPrefix(path, modelPath) {
		return modelPath
	}
	return path
}

type status struct {
	Status string `json:"status"`
}

// answerReady answers whether a server is ready.
func (r *Router) answerReady(w http.ResponseWriter) {
	switch {
	case r.draining():
		errDraining().Write(w)
	case r.servers.ready() == 0:
		errNoServer().Write(w)
	default:
		api.WriteJSON(w, http.StatusOK, status{"ready"})
	}
}

func errNoServer() *api.Error {
	return coded(http.StatusServiceUnavailable, "no_server", "no server is ready")
}

// route forwards a request, counts it under the name of its path, and logs it.
func (r *Router) route(w http.ResponseWriter, q *http.Request, path string) {
	begun := time.Now()
	o := outcome{status: http.StatusOK, call: trace.Read(q.Header)}
	parent := o.call.Context
	o.call.Context = r.o.Trace.Start(parent)
	o.call.ID = cmp.Or(o.call.ID, api.NewID("route-"))
	w.Header().Set(trace.IDHeader, o.call.ID)
	err := r.try(w, q, &o)
	code := ""
	if err != nil {
		o.status, code = err.Status, *err.Code
		if !o.begun {
			err.Write(w)
		}
	}
	r.metrics.request(path, o)
	r.span(q, path, &o, parent, begun, err)
	r.o.Log.Info("request", "id", o.call.ID, "path", path, "status", o.status, "error", code, "machine", o.machine, "prefill", o.prefill,
		"tries", o.tries, "seconds", time.Since(begun).Seconds())
}

// outcome is how a request went.
type outcome struct {
	status           int
	call             trace.Call
	known            bool // its key is valid, or none is required
	machine, prefill string
	tries            int
	begun            bool // something was sent to the client
	first            time.Duration
}

// try checks a request, reads it, and forwards it.
func (r *Router) try(w http.ResponseWriter, in *http.Request, o *outcome) *api.Error {
	// This also bounds a rejected body, which net/http reads to its end. In a test it may fail.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.o.SlowStart))
	switch {
	case r.o.Local && !api.Local(in.Host, r.o.Hosts...):
		return coded(http.StatusMisdirectedRequest, "wrong_host", "host %.100s is not allowed; this router answers to IP addresses, localhost and the names in --hosts", in.Host)
	case r.draining():
		return errDraining()
	}
	ctx, end := context.WithTimeout(in.Context(), r.o.Deadline)
	defer end()
	q, failure := r.read(ctx, w, in)
	if failure != nil {
		return failure
	}
	o.known = true
	defer q.free()
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err := r.enter(q); err != nil {
		return err
	}
	defer r.leave(q)
	return r.find(w, q, o)
}

// find tries up to two machines, and sends the answer of the one that succeeds, else the last.
func (r *Router) find(w http.ResponseWriter, q *request, o *outcome) *api.Error {
	entered := time.Now()
	n := q.need
	prefill := r.takePrefill(q, &n, entered)
	defer prefill.free()
	if prefill != nil {
		o.prefill = prefill.m.name
	}
	r.retries.earn()
	var tried []*machine
	var last *answer // a failure that a retry may improve on
	var from *machine
	for o.tries < 2 {
		h := r.servers.take(n, tried, time.Now())
		if h == nil {
			break
		}
		o.tries++
		o.machine = h.m.name
		tried = append(tried, h.m)
		call, begun := trace.Call{ID: o.call.ID, Context: r.o.Trace.Start(o.call.Context)}, time.Now()
		a, err := r.ask(q, h.m, o.prefill, call)
		if last != nil && last.status == http.StatusInternalServerError && err == nil && a.status < 400 {
			r.answered(from, false) // another succeeds, so the failure was not due to the request
		}
		final := err == nil && (o.tries == 2 || !retryable(a.status) || a.status == http.StatusInternalServerError && !r.retries.take())
		if final {
			defer func() { r.spanOfTry(h.m, call, o, begun, nil) }()
			o.first = time.Since(entered)
			prefill.free()
			h.prefilled()
			q.answered()
			defer h.free()
			return r.pass(w, q, h.m, a, o)
		}
		r.spanOfTry(h.m, call, o, begun, err)
		h.free()
		switch {
		case q.ctx.Err() != nil:
			return q.over()
		case err == nil:
			last, from = a, h.m
		default:
			r.o.Log.Warn("request failed on a server", "id", o.call.ID, "machine", h.m.name, "error", err)
		}
	}
	switch {
	case last != nil: // no retry succeeded
		return r.pass(w, q, from, last, o)
	case o.tries == 0:
		return errNoServer()
	}
	return coded(http.StatusBadGateway, "server_failed", "%d servers failed to answer", o.tries)
}

// takePrefill assigns the prompt of a request to a prefill server, which takes that work off n;
// nil: none is needed, or ready.
func (r *Router) takePrefill(q *request, n *balance.Need, now time.Time) *assignment {
	if len(r.prefill.machines) == 0 || !q.writes {
		return nil
	}
	prompt := balance.Need{Blocks: n.Blocks, Bytes: n.Bytes}
	n.Blocks, n.Bytes = nil, 0
	return r.prefill.take(prompt, nil, now)
}

// over is the error of a request whose deadline has passed or whose client has disconnected.
func (q *request) over() *api.Error {
	if q.Context().Err() != nil {
		return coded(api.StatusGone, "cancelled", "the client has disconnected")
	}
	return coded(http.StatusGatewayTimeout, "timeout", "the request exceeded this router's deadline")
}

// retryable reports whether another machine may succeed where one answered this status: its queue
// is full, it drains, or its step failed.
func retryable(status int) bool {
	return slices.Contains([]int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}, status)
}

// ask sends a request to a machine, and waits for its answer or the first event of a stream. It
// fails when the machine answers neither checks nor the request.
func (r *Router) ask(q *request, m *machine, prefill string, call trace.Call) (_ *answer, err error) {
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
	copyHeader(out.Header, q.Header, requestHeaders)
	call.Write(out.Header)
	if prefill != "" {
		out.Header.Set("Krait-Prefill", prefill)
	}
	got, err := r.client.Do(out)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(f.ctx, func() { got.Body.Close() })
	a := &answer{status: got.StatusCode, header: http.Header{}, flight: f}
	copyHeader(a.header, got.Header, responseHeaders)
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

// judge counts an answer against a machine if the machine failed. Status 500 may be due to the
// request, which a retry shows; 504 with code timeout means that the request exceeded the server's
// deadline.
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

// code returns the code of an answer that is an OpenAI API error, else "".
func (a *answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	if json.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return e.Error.Code
}

// cmpCause returns the cause of a context that has ended, else err.
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

// answered counts the outcome of a request for a machine, which may eject it.
func (r *Router) answered(m *machine, ok bool) {
	r.servers.mu.Lock()
	ejected := m.answered(ok, time.Now(), r.o.EjectAfter, r.o.EjectFor)
	r.servers.mu.Unlock()
	if !ok {
		m.soon()
	}
	if ejected {
		r.o.Log.Warn("server ejected after consecutive failures", "machine", m.name, "failures", r.o.EjectAfter)
		r.metrics.ejections.WithLabelValues(m.name).Inc()
	}
}

// pass sends an answer to the client, in whole events.
func (r *Router) pass(w http.ResponseWriter, q *request, m *machine, a *answer, o *outcome) *api.Error {
	defer a.end(nil)
	if err := misconfigured(a); err != nil {
		r.o.Log.Error("server does not know the prefill server; give router and servers the same --prefill", "machine", m.name, "prefill", o.prefill)
		return err
	}
	copyHeader(w.Header(), a.header, responseHeaders)
	control := http.NewResponseController(w)
	send := func(data []byte) error {
		control.SetWriteDeadline(time.Now().Add(r.o.Stall))
		defer control.SetWriteDeadline(time.Time{}) // HTTP/2 would apply it between two events, too
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
			return coded(api.StatusGone, "cancelled", "the client has disconnected, or does not read")
		}
		if a.rest == nil {
			break
		}
		done := string(bytes.TrimRight(data, "\r\n")) == "data: [DONE]" // all that follows is the end of the body
		var err error
		if data, err = event(a.rest); done || err == io.EOF && len(data) == 0 {
			break
		} else if err != nil {
			return r.lost(w.Header(), send, q, o, m, cmpCause(a.ctx, err))
		}
	}
	if a.status < 500 && a.status != http.StatusTooManyRequests {
		r.answered(m, true)
	}
	return nil
}

// lost ends a client's stream with an error event.
func (r *Router) lost(h http.Header, send func([]byte) error, q *request, o *outcome, m *machine, why error) *api.Error {
	if q.Context().Err() != nil {
		return q.over()
	}
	if q.ctx.Err() == nil { // else the request took too long
		r.answered(m, false)
	}
	r.metrics.lost.WithLabelValues(m.name).Inc()
	r.o.Log.Warn("connection to a server lost during an answer", "id", o.call.ID, "machine", m.name, "error", why)
	e := coded(http.StatusBadGateway, "server_lost", "the connection to the server was lost during the answer")
	if q.ctx.Err() != nil {
		e = q.over()
	}
	data, bad := json.Marshal(e.Body(h))
	if bad != nil {
		panic("BUG: " + bad.Error())
	}
	send(fmt.Appendf(nil, "data: %s\n\n", data))
	return e
}

// event reads the next whole event of a stream, so that the router never forwards a part of one. At
// the end of the stream the error is io.EOF; data is an incomplete event, if any.
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

// misconfigured returns the error for a server that does not know the router's prefill server.
func misconfigured(a *answer) *api.Error {
	if a.status != http.StatusBadRequest || a.code() != "unknown_prefill" {
		return nil
	}
	return coded(http.StatusBadGateway, "unknown_prefill", "the server does not know the prefill server that this router chose; give both the same --prefill")
}

package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/constrain"
)

// Queue bounds running and queued requests.
type Queue = admit.Limits

// Rate bounds a tenant's requests and tokens per minute.
type Rate = admit.Rate

// Options configure a server. The zero value suits a local machine.
type Options struct {
	// Name is the model's name in the API; empty: the model's own name.
	Name string
	// Keys are the accepted keys; nil: no key is required.
	Keys *Keys
	// Queue bounds running and queued requests.
	Queue Queue
	// AnswerTokens is the default max_tokens of a chat completion; 0: 1024. That of /v1/completions is
	// 16, as OpenAI's.
	AnswerTokens int
	// Body bounds the bytes of a request; 0: 4 MiB, or half of Bodies if that is less.
	Body int64
	// Bodies bounds the bytes of all requests that are read, parsed or tokenized, before they enter
	// the queue. Clients (keys, or addresses without keys) share it. 0: a 64th of the planned memory,
	// from 8 to 64 MiB, and 64 MiB without a plan.
	Bodies int64
	// Deadline bounds a request, including its time in the queue; 0: 10 minutes.
	Deadline time.Duration
	// Stall bounds the time to send a request, and the time that a client takes to read a part of its
	// answer; 0: 30 seconds.
	Stall time.Duration
	// Unguarded encodes special tokens that appear in chat messages as such, as transformers does. A
	// message can then end itself and continue in another role.
	Unguarded bool
	// ToolParser is the format of calls of tools, one of [reply.Names]; empty: the one that the chat
	// template asks for.
	ToolParser string
	// StrictAPI rejects unknown parameters. Otherwise they have no effect, and the header Krait-Warning
	// names them.
	StrictAPI bool
	// Origins are the web sites whose pages may call the server from a browser, such as
	// https://example.com, or * for all (CORS); nil: none.
	Origins []string
	// ShareCache shares the prefix cache among all tenants. Otherwise tenants are separate, so that
	// its timing reveals nothing about other tenants' prompts.
	ShareCache bool
	// Log receives a line per request (tenant, time, tokens), without texts; nil: no log.
	Log *slog.Logger
	// Local accepts only requests whose Host is an IP address, localhost or one of Hosts. A server
	// without keys needs it against DNS rebinding from a browser.
	Local bool
	// Hosts are further host names that Local accepts.
	Hosts []string
	// Prefill are prefill servers. Prompts with a common prefix go to the same one. If a prefill
	// fails, this server prefills the prompt, unless the Prefill is strict. The server skips those
	// that are Down.
	Prefill []krait.Prefiller
	// PrefillNames name each of Prefill for the request header Krait-Prefill, by which krait route
	// chooses one. Empty: the header is rejected.
	PrefillNames []string
	// Trace gets spans of requests and their phases; nil: none.
	Trace *trace.Exporter
	// Metrics are served at /metrics; open the model with their callbacks. nil: none.
	Metrics *metrics.Metrics
	// Board provides the page at /; open the model with its callbacks. nil: no page.
	Board *board.Board
}

// Server serves a model. It is an [http.Handler]; its [http.Server] bounds headers and connections.
type Server struct {
	m       *krait.Model
	o       Options
	tokens  krait.Tokenizer
	chat    *chat.Template
	talk    talk
	noChat  error // why the template cannot be used
	guard   []string
	queue   *admit.Queue
	intake  *intake
	started time.Time
	routes  map[string]route
	keys    atomic.Pointer[Keys]

	vocabulary func() (*constrain.Vocabulary, error) // for response_format, computed once

	grammars constrain.Cache

	longestToken func() int // in bytes
}

type route struct {
	method string
	open   bool // requires no key
	quiet  bool // polled: logged at level debug
	handle func(*response, *http.Request) error
	described
}

// New returns a server for a model with a tokenizer. The caller closes the model after all requests
// have ended, and should not use it otherwise meanwhile: the server counts on all slots.
func New(m *krait.Model, o Options) (*Server, error) {
	o.Name = cmp.Or(o.Name, m.Name)
	o.AnswerTokens = cmp.Or(o.AnswerTokens, 1024)
	o.Bodies = cmp.Or(o.Bodies, max(defaultBodies(m.MemoryPlan().Memory), 2*o.Body))
	o.Body = cmp.Or(o.Body, min(4<<20, o.Bodies/2))
	o.Deadline = cmp.Or(o.Deadline, 10*time.Minute)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if err := o.check(); err != nil {
		return nil, err
	}
	queue, err := m.Session().Admission(o.Queue)
	if err != nil {
		return nil, fmt.Errorf("Queue.Tokens: %w", err)
	}
	s := &Server{m: m, o: o, queue: queue, intake: newIntake(o.Bodies, o.Body), started: time.Now()}
	s.keys.Store(o.Keys)
	s.vocabulary = sync.OnceValues(s.newVocabulary)
	s.longestToken = sync.OnceValue(s.newLongestToken)
	if s.tokens, err = m.Tokenizer(); err != nil {
		return nil, err
	}
	if s.chat, s.noChat = m.ChatTemplate(); errors.Is(s.noChat, chat.ErrNone) {
		s.chat = chat.Plain()
	}
	if !o.Unguarded {
		s.guard = chat.Specials(s.tokens)
	}
	if s.talk, err = s.newTalk(); err != nil {
		return nil, fmt.Errorf("ToolParser: %w", err)
	}
	s.routes = s.apiRoutes()
	if o.Board != nil {
		s.page(o.Board)
	}
	if o.Metrics != nil {
		s.measure(o.Metrics)
	}
	return s, nil
}

// check returns an error for options out of range, after defaults are set.
func (o *Options) check() error {
	switch {
	case o.AnswerTokens < 0 || o.Body < 0 || o.Bodies < 0 || o.Deadline < 0 || o.Stall < 0 || o.Queue.Requests < 0 || o.Queue.Tokens < 0 || o.Queue.Rate.Requests < 0 || o.Queue.Rate.Tokens < 0:
		return errors.New("openai: limits must not be negative")
	case o.Bodies < 2*o.Body:
		return fmt.Errorf("openai: Bodies is %d; it must be at least %d, twice Body", o.Bodies, 2*o.Body)
	case len(o.PrefillNames) > 0 && len(o.PrefillNames) != len(o.Prefill):
		return fmt.Errorf("openai: PrefillNames has %d names for %d prefill servers", len(o.PrefillNames), len(o.Prefill))
	}
	return nil
}

// ChatWarning returns a warning about the model's chat template, or "".
func (s *Server) ChatWarning() string {
	switch {
	case s.noChat == nil:
		return ""
	case s.chat != nil:
		return "the checkpoint has no chat template and may not be a chat model: lines begin with \"User:\" and \"Assistant:\""
	}
	return "chat requests are rejected: " + s.noChat.Error()
}

// SetKeys replaces [Options.Keys]. Active requests continue.
func (s *Server) SetKeys(k *Keys) { s.keys.Store(k) }

// Drain rejects new requests with status 503, and fails /ready. Active requests continue.
func (s *Server) Drain() { s.queue.Close() }

// Load is a server's load.
type Load struct {
	Waiting, Running int // texts queued, and with a slot
	Tokens           int // upper bound on their tokens
}

// Load returns the current load.
func (s *Server) Load() Load {
	texts, tokens := s.queue.Load()
	running := min(s.m.Session().Scheduler().Load().Running, texts)
	return Load{texts - running, running, tokens}
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	out := &response{ResponseWriter: w, control: http.NewResponseController(w), stall: s.o.Stall, strict: s.o.StrictAPI, call: trace.Read(r.Header)}
	out.parent = out.call.Context
	out.call.Context = s.o.Trace.Start(out.parent)
	out.call.ID = cmp.Or(out.call.ID, api.NewID("req-"))
	out.Header().Set(trace.IDHeader, out.call.ID)
	err := s.answer(out, r.WithContext(trace.With(r.Context(), out.call)))
	code := ""
	var e *Error
	if err != nil {
		if e = errorOf(err); out.status == 0 {
			e.Write(out)
		}
		code = e.Type
		if e.Code != nil {
			code = *e.Code
		} else if e.Param != nil {
			code += " " + *e.Param
		}
		if e.Status >= 500 && e.Status != http.StatusServiceUnavailable {
			s.o.Log.Error("request failed", "id", out.call.ID, "error", err)
		}
	}
	s.count(r, out.status, e)
	s.spanOf(out, r, begun, err)
	level := slog.LevelInfo
	if s.routes[r.URL.Path].quiet && err == nil {
		level = slog.LevelDebug
	}
	s.o.Log.Log(r.Context(), level, "request", "id", out.call.ID, "tenant", out.tenant, "method", r.Method, "path", short(r.URL.Path), "status", out.status,
		"error", code, "seconds", time.Since(begun).Seconds(), "queued", out.queued.Seconds(), "prompt", out.used.Prompt, "cached", out.used.Details.Cached, "completion", out.used.Completion)
}

// answer checks what all requests must have, and calls the route's handler.
func (s *Server) answer(w *response, r *http.Request) error {
	if s.o.Local && !api.Local(r.Host, s.o.Hosts...) {
		return coded(http.StatusMisdirectedRequest, "invalid_request_error", "wrong_host", "host %s is not allowed; this server answers to IP addresses, localhost and the names in --hosts, or to all if it has keys", short(r.Host))
	}
	if s.share(w, r) {
		return nil
	}
	if r.ContentLength != 0 { // also bounds a rejected body, which net/http reads to its end
		w.control.SetReadDeadline(time.Now().Add(w.stall / 3))
	}
	_, to, ok := s.find(r.URL.Path)
	if !ok {
		return coded(http.StatusNotFound, "invalid_request_error", "unknown_url", "unknown URL: %s %s", r.Method, short(r.URL.Path))
	}
	if !to.open {
		tenant, err := s.keys.Load().Tenant(r)
		if err != nil {
			return err
		}
		w.tenant, w.known = tenant, true
	}
	if to.method != "" && r.Method != to.method && !(r.Method == http.MethodHead && to.method == http.MethodGet) {
		w.Header().Set("Allow", to.method)
		return coded(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%s requires method %s", r.URL.Path, to.method)
	}
	if to.method == "POST" {
		// Browsers send this type to another site only after a preflight request.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return coded(http.StatusUnsupportedMediaType, "invalid_request_error", "unsupported_media_type", "the body must be JSON; send the header Content-Type: application/json")
		}
		if err := s.admit(w, r); err != nil {
			return err
		}
		defer w.lease.end()
	}
	ctx, end := context.WithTimeout(r.Context(), s.o.Deadline)
	defer end()
	return to.handle(w, r.WithContext(ctx))
}

// response writes with a deadline, and collects what the log has of a request.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration

	strict bool // unknown parameters are errors
	call   trace.Call
	parent trace.Context // the caller's span
	tenant string
	known  bool // its key is valid, or none is required
	status int  // 0: nothing was written
	queued time.Duration
	used   usage
	lease  *lease // of a request with a body
}

func (w *response) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.control.SetWriteDeadline(time.Now().Add(w.stall)) // fails in tests only
	return w.ResponseWriter.Write(data)
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *Server) health(w *response, _ *http.Request) error {
	api.WriteJSON(w, http.StatusOK, status{"ok"})
	return nil
}

// ServeReady answers as /ready does, on a listener of the caller's.
func (s *Server) ServeReady(w http.ResponseWriter, _ *http.Request) {
	if s.queue.Closed() {
		errorOf(errDraining()).Write(w)
		return
	}
	api.WriteJSON(w, http.StatusOK, status{"ready"})
}

func (s *Server) ready(w *response, _ *http.Request) error {
	if s.queue.Closed() {
		return errDraining()
	}
	s.ServeReady(w, nil)
	return nil
}

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
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/constrain"
)

// Options say how a model is served. The zero value is a good start on a machine of one's own.
type Options struct {
	// Name is what clients call the model; empty: its own name.
	Name string
	// Keys are those that clients must have; nil: whoever reaches the server may ask.
	Keys *Keys
	// Queue bounds what is taken on.
	Queue Queue
	// AnswerTokens is how long answers in chats may be that say no max_tokens; 0: 1024. Those of
	// completions have 16, as OpenAI's.
	AnswerTokens int
	// Body is how many bytes a request may have; 0: 4 MiB, or half of Bodies if that is less.
	Body int64
	// Bodies is how many bytes of requests may be in work together before they are in the queue:
	// read, parsed and encoded. A key, and without keys an address, may have as many as stay free.
	// 0: a 64th of the planned memory, from 8 to 64 MiB, and 64 MiB without a plan.
	Bodies int64
	// Deadline is how long a request may take, waiting included; 0: 10 minutes.
	Deadline time.Duration
	// Stall is how long a client may take to send its request, and to take what is sent to it;
	// 0: 30 seconds.
	Stall time.Duration
	// Unguarded lets special tokens that messages of chats spell become these tokens, as in
	// transformers: who writes a message can then end it, and go on as somebody else.
	Unguarded bool
	// ShareCache lets all keys go on from what any has sent. Else the prefix cache keeps each
	// tenant's apart, so that it tells nobody what others sent.
	ShareCache bool
	// Log is told of each request: who asked, how long it took, how many tokens, but no text.
	// nil: nothing.
	Log *slog.Logger
	// Local answers only to requests for an IP address, localhost or one of Hosts. A server without
	// keys needs it where a browser reaches it: a site could let its own name lead here, and ask as
	// a page of the server.
	Local bool
	// Hosts are names that Local lets requests ask for.
	Hosts []string
	// Prefill reads prompts elsewhere, each by one of these: those that begin alike by the same. A
	// prompt that it cannot read is read here, as far as the Prefill lets that be; those that are
	// not reached ([prefill.Client.Down]) are left out.
	Prefill []krait.Prefiller
	// PrefillNames are what a request's header Krait-Prefill may call each of them, as krait route does, who has
	// seen which prompts went where. Without them there is no such header.
	PrefillNames []string
	// Metrics are what is counted, at /metrics, which the model should have been opened with;
	// nil: nothing is.
	Metrics *metrics.Metrics
	// Board is what the page at / shows, which the model must have been opened with; nil: there is
	// no page.
	Board *board.Board
}

// Server serves a model. It is an [http.Handler]; who listens bounds headers and connections.
type Server struct {
	m       *krait.Model
	o       Options
	tokens  krait.Tokenizer
	chat    *chat.Template
	noChat  error // why there is no template
	guard   []string
	queue   *queue
	intake  *intake
	started time.Time
	routes  map[string]route
	keys    atomic.Pointer[Keys]

	vocabulary func() (*constrain.Vocabulary, error) // made once, for who asks for a response_format

	longestToken func() int // in bytes
}

type route struct {
	method string
	open   bool // without a key
	quiet  bool // it is asked again and again: logs have it as details
	handle func(*response, *http.Request) error
}

// New serves a model, which must have a tokenizer, and stays the caller's to close, after
// all requests have ended. Others should not ask it in the meantime: they would take slots
// that the server counts on.
func New(m *krait.Model, o Options) (*Server, error) {
	o.Name = cmp.Or(o.Name, m.Name)
	o.AnswerTokens = cmp.Or(o.AnswerTokens, 1024)
	o.Bodies = cmp.Or(o.Bodies, max(defaultBodies(m.MemoryPlan().Memory), 2*o.Body))
	o.Body = cmp.Or(o.Body, min(4<<20, o.Bodies/2))
	o.Deadline = cmp.Or(o.Deadline, 10*time.Minute)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.AnswerTokens < 0 || o.Body < 0 || o.Bodies < 0 || o.Deadline < 0 || o.Stall < 0 || o.Queue.Requests < 0 || o.Queue.Tokens < 0 || o.Queue.Rate.Requests < 0 || o.Queue.Rate.Tokens < 0 {
		return nil, errors.New("openai: a limit is below 0")
	}
	if o.Bodies < 2*o.Body {
		return nil, fmt.Errorf("openai: Bodies is %d; it must be at least %d, twice Body", o.Bodies, 2*o.Body)
	}
	if n := len(o.PrefillNames); n > 0 && n != len(o.Prefill) {
		return nil, fmt.Errorf("openai: %d names of %d who read prompts", n, len(o.Prefill))
	}
	s := &Server{m: m, o: o, queue: newQueue(o.Queue, m.Engine().Slots()), intake: newIntake(o.Bodies, o.Body), started: time.Now()}
	if p := m.MemoryPlan(); p.Room > 0 {
		if err := s.queue.bind(p.Room, p.PageTokens); err != nil {
			return nil, fmt.Errorf("Queue.Tokens: %w; planned are %s", err, p)
		}
	}
	s.keys.Store(o.Keys)
	s.vocabulary = sync.OnceValues(s.newVocabulary)
	s.longestToken = sync.OnceValue(s.newLongestToken)
	var err error
	if s.tokens, err = m.Tokenizer(); err != nil {
		return nil, err
	}
	if s.chat, s.noChat = m.ChatTemplate(); errors.Is(s.noChat, chat.ErrNone) {
		s.chat = chat.Plain()
	}
	if !o.Unguarded {
		s.guard = chat.Specials(s.tokens)
	}
	s.routes = map[string]route{
		"/v1/completions":      {method: "POST", handle: s.completions},
		"/v1/chat/completions": {method: "POST", handle: s.chats},
		"/v1/models":           {method: "GET", handle: s.models},
		"/tokenize":            {method: "POST", handle: s.tokenize},
		"/detokenize":          {method: "POST", handle: s.detokenize},
		"/health":              {method: "GET", open: true, quiet: true, handle: s.health},
		"/ready":               {method: "GET", open: true, quiet: true, handle: s.ready},
	}
	if o.Board != nil {
		s.page(o.Board)
	}
	if o.Metrics != nil {
		s.measure(o.Metrics)
	}
	return s, nil
}

// ChatWarning says what is not well with the model's chat template; empty: nothing.
func (s *Server) ChatWarning() string {
	switch {
	case s.noChat == nil:
		return ""
	case s.chat != nil:
		return "the checkpoint has no chat template, and may not know how to talk: lines of chats begin with User: and Assistant:"
	}
	return "chats are refused: " + s.noChat.Error()
}

// SetKeys replaces [Options.Keys]. Requests under way go on.
func (s *Server) SetKeys(k *Keys) { s.keys.Store(k) }

// Drain lets nobody begin any more: requests get 503, and /ready says so. Those that were
// taken go on.
func (s *Server) Drain() { s.queue.close() }

// Load is what a server has to do.
type Load struct {
	Waiting, Running int // texts without a slot, and with one
	Tokens           int // that they may come to have
}

// Load counts it.
func (s *Server) Load() Load {
	places, tokens := s.queue.load()
	running := min(s.m.Session().Scheduler().Load().Running, places)
	return Load{places - running, running, tokens}
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	out := &response{ResponseWriter: w, control: http.NewResponseController(w), stall: s.o.Stall, id: api.NewID("req-")}
	out.Header().Set("X-Request-Id", out.id)
	err := s.answer(out, r)
	code := ""
	if err != nil {
		e := errorOf(err)
		if out.status == 0 {
			e.Write(out)
		}
		code = e.Type
		if e.Code != nil {
			code = *e.Code
		} else if e.Param != nil {
			code += " " + *e.Param
		}
		if e.Status >= 500 && e.Status != http.StatusServiceUnavailable {
			s.o.Log.Error("failed", "id", out.id, "error", err)
		}
	}
	s.count(r, out.status)
	level := slog.LevelInfo
	if s.routes[r.URL.Path].quiet && err == nil {
		level = slog.LevelDebug
	}
	s.o.Log.Log(r.Context(), level, "request", "id", out.id, "tenant", out.tenant, "method", r.Method, "path", short(r.URL.Path), "status", out.status,
		"error", code, "seconds", time.Since(begun).Seconds(), "queued", out.queued.Seconds(), "prompt", out.used.Prompt, "cached", out.used.Details.Cached, "completion", out.used.Completion)
}

// answer finds who answers, and looks at what all requests must have.
func (s *Server) answer(w *response, r *http.Request) error {
	if s.o.Local && !api.Local(r.Host, s.o.Hosts...) {
		return coded(http.StatusMisdirectedRequest, "invalid_request_error", "wrong_host", "this server answers to IP addresses and to localhost, and was asked as %s: name it in --hosts, or give the server keys", short(r.Host))
	}
	if r.ContentLength != 0 { // also of a body that is refused, and read to its end by net/http
		w.control.SetReadDeadline(time.Now().Add(w.stall / 3))
	}
	to, ok := s.routes[r.URL.Path]
	if !ok {
		return coded(http.StatusNotFound, "invalid_request_error", "unknown_url", "there is no %s %s", r.Method, short(r.URL.Path))
	}
	if !to.open {
		tenant, err := s.keys.Load().Tenant(r)
		if err != nil {
			return err
		}
		w.tenant = tenant
	}
	if r.Method != to.method && !(r.Method == http.MethodHead && to.method == http.MethodGet) {
		w.Header().Set("Allow", to.method)
		return coded(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "%s takes %s", r.URL.Path, to.method)
	}
	if to.method == "POST" {
		// Pages of other sites cannot send this type without asking first.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return coded(http.StatusUnsupportedMediaType, "invalid_request_error", "unsupported_media_type", "the body must be JSON, and the header say so: Content-Type: application/json")
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

// response is what is written, in time, and what logs say of it.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration

	id, tenant string
	status     int // 0: nothing was written
	queued     time.Duration
	used       usage
	lease      *lease // of a request with a body
}

func (w *response) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.control.SetWriteDeadline(time.Now().Add(w.stall)) // what cannot have one is a test
	return w.ResponseWriter.Write(data)
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *Server) models(w *response, _ *http.Request) error {
	card := modelCard{ID: s.o.Name, Object: "model", Created: s.started.Unix(), Owner: "krait", Context: s.m.Engine().Context(), Ranks: s.m.Ranks()}
	api.WriteJSON(w, http.StatusOK, modelList{Object: "list", Data: []modelCard{card}})
	return nil
}

func (s *Server) health(w *response, _ *http.Request) error {
	api.WriteJSON(w, http.StatusOK, status{"ok"})
	return nil
}

func (s *Server) ready(w *response, _ *http.Request) error {
	if s.queue.isClosed() {
		return errDraining()
	}
	api.WriteJSON(w, http.StatusOK, status{"ready"})
	return nil
}

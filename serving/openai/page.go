package openai

import (
	"net/http"

	"github.com/krait-ml/krait/serving/board"
)

// page adds the page, and the data that it shows at /board. The page itself has no data of this
// server, and requires no key.
func (s *Server) page(b *board.Board) {
	s.routes["/"] = route{method: "GET", open: true, described: described{about: "shows the page"}, handle: func(w *response, r *http.Request) error {
		board.Page(w, r)
		return nil
	}}
	var cache func() board.Cache
	if s.m.Session().PrefixCacheBytes() > 0 {
		cache = s.cache
	}
	s.routes["/board"] = route{method: "GET", quiet: true, described: described{about: "has the data of the page", answer: map[string]any{}}, handle: func(w *response, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(b.JSON(s.state, cache))
		return nil
	}}
}

// state adds the server's own data to the board's.
func (s *Server) state(b *board.State) {
	b.Model, b.Ranks, b.Slots = s.o.Name, s.m.Ranks(), s.m.Engine().Slots()
	load := s.Load()
	b.Waiting, b.Running, b.Tokens = load.Waiting, load.Running, load.Tokens
	limits := s.queue.Limits()
	b.MaxWait, b.MaxTokens, b.Draining = limits.Requests, limits.Tokens, s.queue.Closed()
	for _, r := range s.m.Session().Scheduler().Active() {
		b.Requests = append(b.Requests, board.Request{Slot: r.Slot, Number: r.Number, Prompt: r.Prompt, Read: r.Read, Cached: r.Cached, Chosen: r.Chosen, Most: r.Most})
	}
}

// cache describes the contents of the prefix cache.
func (s *Server) cache() board.Cache {
	c := s.m.Session().PrefixCache()
	out := board.Cache{Capacity: s.m.Session().PrefixCacheBytes(), Bytes: c.Bytes, States: c.States, Requests: c.Requests, Hits: c.Hits,
		PromptTokens: c.PromptTokens, HitTokens: c.HitTokens, Evictions: c.Evictions}
	for _, n := range s.m.Session().PrefixCacheNodes() {
		out.Nodes = append(out.Nodes, board.Node{Parent: n.Parent, From: n.From, To: n.To, State: n.State, Bytes: n.Bytes, Hits: n.Hits, Unused: n.Unused})
	}
	return out
}

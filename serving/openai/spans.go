package openai

import (
	"net/http"
	"time"

	"github.com/krait-ml/krait/internal/trace"
)

// spanOf records the span of a request whose client may use the server.
func (s *Server) spanOf(w *response, r *http.Request, begun time.Time, err error) {
	path, to, _ := s.find(r.URL.Path)
	if !w.known || to.quiet || to.open {
		return
	}
	span := w.call.Answer(w.parent, r.Method, path, w.status, begun, trace.Attribute{Key: "gen_ai.request.model", Value: s.o.Name},
		trace.Attribute{Key: "gen_ai.usage.input_tokens", Value: w.used.Prompt}, trace.Attribute{Key: "gen_ai.usage.output_tokens", Value: w.used.Completion})
	if err != nil && errorOf(err).Status >= http.StatusInternalServerError {
		span.Error = err.Error()
	}
	s.o.Trace.Record(span)
}

// spans records the phases of a choice: queue, prefill, transfer of a state that a prefill server
// had, and decode. Choices that share a prefill have one span of it, made with the first.
func (s *Server) spans(c *choice) {
	if s.o.Trace == nil || !c.call.Valid() {
		return
	}
	at := c.arrived
	phase := func(name string, own trace.Context, kind trace.Kind, took time.Duration, more ...trace.Attribute) {
		end := at.Add(max(took, 0))
		s.o.Trace.Record(trace.Span{Context: own, Parent: c.call.Span, Name: name, Kind: kind, Start: at, End: end, Attributes: append(more, trace.Attribute{Key: "krait.choice", Value: c.index})})
		at = end
	}
	child := func() trace.Context { return s.o.Trace.Start(c.call.Context) }
	began, first := c.queued, c.first
	if began == 0 { // it never had a slot
		phase("queue", child(), trace.Internal, c.took)
		return
	}
	phase("queue", child(), trace.Internal, began)
	if first == 0 {
		first = c.took
	}
	tokens := trace.Attribute{Key: "krait.prompt_tokens", Value: len(c.prompt)}
	switch {
	case c.shares:
		at = c.arrived.Add(first)
	case c.out != nil && c.out.Remote != nil:
		x := c.out.Remote
		at = x.Begun
		phase("prefill", c.prefill, trace.Client, x.Prefill, tokens)
		phase("transfer", child(), trace.Internal, x.Transfer, trace.Attribute{Key: "krait.bytes", Value: int(x.Bytes)})
	default:
		phase("prefill", c.prefill, trace.Internal, first-began, tokens)
	}
	if c.first > 0 {
		n := 0
		if c.out != nil {
			n = len(c.out.IDs)
		}
		phase("decode", child(), trace.Internal, c.arrived.Add(c.last).Sub(at), trace.Attribute{Key: "krait.tokens", Value: n})
	}
}

package route

import (
	"net/http"
	"time"

	"github.com/krait-ml/krait/internal/trace"
	"github.com/krait-ml/krait/serving/internal/api"
)

// span records the span of a request whose body was read.
func (r *Router) span(q *http.Request, path string, o *outcome, parent trace.Context, begun time.Time, err *api.Error) {
	if !o.known {
		return
	}
	s := o.call.Answer(parent, q.Method, path, o.status, begun, trace.Attribute{Key: "krait.tries", Value: o.tries})
	if err != nil && err.Status >= http.StatusInternalServerError {
		s.Error = err.Message
	}
	r.o.Trace.Record(s)
}

// spanOfTry records the span of a request at one server.
func (r *Router) spanOfTry(m *machine, call trace.Call, o *outcome, begun time.Time, err error) {
	s := trace.Span{Context: call.Context, Parent: o.call.Span, Name: "forward", Kind: trace.Client, Start: begun, End: time.Now(), Attributes: []trace.Attribute{
		{Key: "server.address", Value: m.name}, {Key: "krait.prefill", Value: o.prefill}}}
	if err != nil {
		s.Error = err.Error()
	}
	r.o.Trace.Record(s)
}

package trace

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/krait-ml/krait/internal/program"
)

// The messages of OTLP in JSON: opentelemetry/proto/collector/trace/v1, where identifiers are
// hexadecimal and 64-bit integers are strings.
type (
	message struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		Span       string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		State      string      `json:"traceState,omitempty"`
		Flags      int         `json:"flags"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     *status     `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	attribute struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

// failed is the code of a status.
const failed = 2

func newResource(service string) resource {
	return resource{[]attribute{encoded(Attribute{"service.name", service}), encoded(Attribute{"service.version", program.Version()})}}
}

// encode returns the message for spans.
func (r resource) encode(list []Span) []byte {
	out := scopeSpans{Scope: scope{"github.com/krait-ml/krait", program.Version()}}
	for _, s := range list {
		one := span{Trace: hex.EncodeToString(s.Trace[:]), Span: hex.EncodeToString(s.Span[:]), State: s.State, Flags: 1, Name: s.Name, Kind: s.Kind, Start: nanos(s.Start), End: nanos(s.End)}
		if s.Parent != [8]byte{} {
			one.Parent = hex.EncodeToString(s.Parent[:])
		}
		for _, a := range s.Attributes {
			one.Attributes = append(one.Attributes, encoded(a))
		}
		if s.Error != "" {
			one.Status = &status{failed, s.Error}
		}
		out.Spans = append(out.Spans, one)
	}
	text, err := json.Marshal(message{[]resourceSpans{{r, []scopeSpans{out}}}})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return text
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func encoded(a Attribute) attribute {
	switch v := a.Value.(type) {
	case int:
		return attribute{a.Key, map[string]any{"intValue": strconv.Itoa(v)}}
	case float64:
		return attribute{a.Key, map[string]any{"doubleValue": v}}
	case string:
		return attribute{a.Key, map[string]any{"stringValue": v}}
	}
	panic("BUG: an attribute of another type")
}

// Package trace follows requests through processes: it has the identifiers that hops tell each
// other, and sends spans to a collector of OpenTelemetry.
//
// The context of a trace travels as W3C Trace Context (https://www.w3.org/TR/trace-context/).
// Spans go out as OTLP over HTTP, in JSON ([Exporter]). Without an exporter contexts still travel.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"
)

// Names of headers.
const (
	IDHeader     = "X-Request-Id"
	parentHeader = "Traceparent"
	stateHeader  = "Tracestate"
)

// Bounds of what others send.
const (
	mostID    = 128
	mostState = 512
)

// Context is a span's place in a trace. The zero value is no trace.
type Context struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool
	State   string // of other vendors, passed on
}

// Valid reports whether there is a trace.
func (c Context) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// Child returns the context of a new span of the same trace.
func (c Context) Child() Context {
	rand.Read(c.Span[:])
	return c
}

// String returns the context as a traceparent, or "" if there is no trace.
func (c Context) String() string {
	if !c.Valid() {
		return ""
	}
	flags := "-00"
	if c.Sampled {
		flags = "-01"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + flags
}

// Parse parses a traceparent. A malformed one is no trace.
func Parse(text string) (c Context) {
	// Versions after 00 may have more fields, after another dash.
	if len(text) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return c
	}
	version, ok := lowerHex(text[:2])
	if !ok || version[0] == 0xff || version[0] == 0 && len(text) != 55 || len(text) > 55 && text[55] != '-' {
		return c
	}
	id, ok1 := lowerHex(text[3:35])
	span, ok2 := lowerHex(text[36:52])
	flags, ok3 := lowerHex(text[53:55])
	if !ok1 || !ok2 || !ok3 {
		return c
	}
	c = Context{Trace: [16]byte(id), Span: [8]byte(span), Sampled: flags[0]&1 == 1}
	if !c.Valid() {
		return Context{}
	}
	return c
}

// lowerHex decodes hexadecimal digits, of which letters must be small.
func lowerHex(text string) ([]byte, bool) {
	for _, c := range []byte(text) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return nil, false
		}
	}
	out, err := hex.DecodeString(text)
	return out, err == nil
}

// Call is what hops tell each other of a request.
type Call struct {
	ID string // X-Request-Id
	Context
}

// CheckID returns an id that another process sent, or "" if it is malformed: it must have from 1 to
// 128 ASCII letters, digits and characters of -_.:
func CheckID(id string) string {
	if len(id) > mostID {
		return ""
	}
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.' || c == ':') {
			return ""
		}
	}
	return id
}

// Read returns the call of a request's headers. It leaves out malformed ones.
func Read(h http.Header) Call {
	c := Call{ID: CheckID(h.Get(IDHeader)), Context: Parse(h.Get(parentHeader))}
	if state := h.Get(stateHeader); c.Valid() && len(state) <= mostState {
		c.State = state
	}
	return c
}

// Write sets the headers of a request to another process.
func (c Call) Write(h http.Header) {
	for name, value := range map[string]string{IDHeader: c.ID, parentHeader: c.String(), stateHeader: c.State} {
		if value != "" {
			h.Set(name, value)
		}
	}
}

type key struct{}

// With returns a context of the call.
func With(ctx context.Context, c Call) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the call of a context; the zero value: there is none.
func From(ctx context.Context) Call {
	c, _ := ctx.Value(key{}).(Call)
	return c
}

// Kind is the kind of a span, by its number in OTLP.
type Kind int

// The kinds.
const (
	Internal Kind = 1
	Server   Kind = 2 // answers a call of another process
	Client   Kind = 3 // calls another process
)

// Span is a part of a request's time.
type Span struct {
	Context
	Parent     [8]byte // zero: none
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	Error      string // why it failed; empty: it did not
}

// Answer returns the span of an HTTP request that a process has answered, from begun until now.
func (c Call) Answer(parent Context, method, route string, status int, begun time.Time, more ...Attribute) Span {
	return Span{Context: c.Context, Parent: parent.Span, Name: method + " " + route, Kind: Server, Start: begun, End: time.Now(), Attributes: append([]Attribute{
		{"http.request.method", method}, {"http.route", route}, {"http.response.status_code", status}, {"krait.request_id", c.ID}}, more...)}
}

// Attribute is a property of a span: a string, int or float64.
type Attribute struct {
	Key   string
	Value any
}

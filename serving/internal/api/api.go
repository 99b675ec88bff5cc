// Package api has what the server and the router of OpenAI's HTTP API share: errors, identifiers,
// keys, and the check of a request's Host.
package api

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/trace"
)

// Error is an error response in the shape of OpenAI's API.
type Error struct {
	Status  int           `json:"-"` // of HTTP
	Message string        `json:"message"`
	Type    string        `json:"type"`
	Param   *string       `json:"param"` // the invalid parameter; nil: none
	Code    *string       `json:"code"`
	Request string        `json:"request_id,omitempty"`
	Retry   time.Duration `json:"-"` // for the header Retry-After; 0: none
}

// StatusGone is the status in logs of a request whose client has disconnected. It is not sent.
const StatusGone = 499

func (e *Error) Error() string { return e.Message }

// Write writes the error as the response, with the request's id of the header.
func (e *Error) Write(w http.ResponseWriter) {
	if e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.Retry.Seconds()))))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	WriteJSON(w, e.Status, e.Body(w.Header()))
}

// Body returns the error as the API's JSON object, with the request's id of the answer's header.
func (e *Error) Body(answer http.Header) any {
	out := *e
	out.Request = answer.Get(trace.IDHeader)
	return struct {
		Error *Error `json:"error"`
	}{&out}
}

// WriteJSON writes v as a JSON response.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n'))
}

// Local reports whether a host, with or without a port, is an IP address, localhost or one of
// names. Other names could be an attacker's (DNS rebinding).
func Local(host string, names ...string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// NewID returns a random identifier.
func NewID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// Package api has what all servers of OpenAI's HTTP API here share: the shape of errors,
// identifiers, keys, and who may ask one that only its own machine reaches.
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
)

// Error is what a client gets in place of an answer, in the shape of OpenAI's API.
type Error struct {
	Status  int           `json:"-"` // of HTTP
	Message string        `json:"message"`
	Type    string        `json:"type"`
	Param   *string       `json:"param"` // the parameter that is wrong; nil: none
	Code    *string       `json:"code"`
	Retry   time.Duration `json:"-"` // when to ask again; 0: not said
}

// StatusGone is what logs say where the client has gone; nobody reads it.
const StatusGone = 499

func (e *Error) Error() string { return e.Message }

// Write answers by the error.
func (e *Error) Write(w http.ResponseWriter) {
	if e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.Retry.Seconds()))))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	WriteJSON(w, e.Status, e.Body())
}

// Body is the error as the API has it, to be written as JSON.
func (e *Error) Body() any {
	return struct {
		Error *Error `json:"error"`
	}{e}
}

// WriteJSON answers by JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n'))
}

// Local reports whether a host, maybe with a port, is an address or localhost, which no name
// server can lead elsewhere, or one of names.
func Local(host string, names ...string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost") || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// NewID is an identifier that nobody guesses.
func NewID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

package route

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Error is what the router itself answers, in the shape of OpenAI's API.
type Error struct {
	Status  int    `json:"-"` // of HTTP
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"`
	Code    string `json:"code"`
}

func (e *Error) Error() string { return e.Message }

// coded is an error; below 500 it is the client's.
func coded(status int, code, format string, args ...any) *Error {
	kind := "server_error"
	if status < 500 && status != http.StatusTooManyRequests {
		kind = "invalid_request_error"
	}
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: code}
}

func (e *Error) body() []byte {
	data, err := json.Marshal(map[string]any{"error": e})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return data
}

func (e *Error) write(w http.ResponseWriter) {
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	w.Write(append(e.body(), '\n'))
}

package route

import (
	"fmt"
	"net/http"
	"time"

	"github.com/krait-ml/krait/serving/internal/api"
)

// coded returns an error of the router itself. Errors below 500 are the client's.
func coded(status int, code, format string, args ...any) *api.Error {
	e := &api.Error{Status: status, Message: fmt.Sprintf(format, args...), Type: "server_error", Code: &code}
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		e.Retry = time.Second
	case status < 500:
		e.Type = "invalid_request_error"
	}
	return e
}

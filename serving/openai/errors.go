package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/internal/api"
	"github.com/krait-ml/krait/session/admit"
)

// Error is an error response in the shape of OpenAI's API.
type Error = api.Error

// bad returns the error of an invalid parameter.
func bad(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: param + ": " + fmt.Sprintf(format, args...), Type: "invalid_request_error", Param: &param}
}

// badBody returns the error of an invalid request as a whole.
func badBody(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error"}
}

func coded(status int, kind, code, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: &code}
}

// errDraining rejects a request while the server drains; a router retries it on another server.
func errDraining() error {
	e := coded(http.StatusServiceUnavailable, "server_error", "draining", "the server is shutting down and takes no new requests")
	e.Retry = time.Second
	return e
}

// errorOf converts an error for the client. Errors of steps have status 500.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*admit.Error](err); ok {
		return rejected(e)
	}
	large, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok:
		return coded(http.StatusRequestEntityTooLarge, "invalid_request_error", "body_too_large", "the body is larger than %d bytes, the limit of this server", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return coded(http.StatusRequestTimeout, "invalid_request_error", "slow_client", "the body arrived too slowly")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badBody("the body ends early")
	case errors.Is(err, krait.ErrClosed):
		return coded(http.StatusServiceUnavailable, "server_error", "closing", "the server is closing")
	case errors.Is(err, context.DeadlineExceeded):
		return coded(http.StatusGatewayTimeout, "server_error", "timeout", "the request exceeded this server's deadline")
	case errors.Is(err, context.Canceled):
		return coded(api.StatusGone, "server_error", "cancelled", "the request was cancelled")
	}
	return coded(http.StatusInternalServerError, "server_error", "step_failed", "%v", err)
}

// rejected returns the error of a request that the queue does not admit.
func rejected(e *admit.Error) *Error {
	out := &Error{Status: http.StatusTooManyRequests, Message: e.Message, Type: "rate_limit_error", Retry: e.Retry}
	code := ""
	switch e.Kind {
	case admit.Draining:
		out.Status, out.Type, code = http.StatusServiceUnavailable, "server_error", "draining"
	case admit.Full:
		code = "queue_full"
	case admit.RateExceeded:
		code = "rate_limit_exceeded"
	case admit.TooLong:
		out.Status, out.Type, code = http.StatusBadRequest, "invalid_request_error", "context_length_exceeded"
	default:
		out.Status, out.Type = http.StatusBadRequest, "invalid_request_error"
		return out
	}
	out.Code = &code
	return out
}

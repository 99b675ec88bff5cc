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
)

// Error is what a client gets in place of an answer, in the shape of OpenAI's API.
type Error = api.Error

// bad is an error of a parameter's value.
func bad(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: param + ": " + fmt.Sprintf(format, args...), Type: "invalid_request_error", Param: &param}
}

// badBody is an error of a request as a whole.
func badBody(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error"}
}

func coded(status int, kind, code, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...), Type: kind, Code: &code}
}

// errDraining refuses new work while the server drains: another server may take it.
func errDraining() error {
	e := coded(http.StatusServiceUnavailable, "server_error", "draining", "the server is being stopped and takes no new requests")
	e.Retry = time.Second
	return e
}

// errorOf is what a client is told of an error. Those of steps are the server's.
func errorOf(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	large, ok := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ok:
		return coded(http.StatusRequestEntityTooLarge, "invalid_request_error", "body_too_large", "the body has more than %d bytes, which is the most that this server reads", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return coded(http.StatusRequestTimeout, "invalid_request_error", "slow_client", "the request did not come in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badBody("the body ends early")
	case errors.Is(err, krait.ErrClosed):
		return coded(http.StatusServiceUnavailable, "server_error", "closing", "the server is being closed")
	case errors.Is(err, context.DeadlineExceeded):
		return coded(http.StatusGatewayTimeout, "server_error", "timeout", "the request took longer than this server lets one take")
	case errors.Is(err, context.Canceled):
		return coded(api.StatusGone, "server_error", "cancelled", "the request was cancelled")
	}
	return coded(http.StatusInternalServerError, "server_error", "step_failed", "%v", err)
}

package route

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/krait-ml/krait/serving/internal/api"
)

// An answer without max_tokens is taken for one of so many tokens, and one with for no more than
// mostTokens: clients name far more than they get.
const (
	usualTokens = 256
	mostTokens  = 4096
)

// request is what a client asks.
type request struct {
	*http.Request                 // whose context is the client's
	ctx           context.Context // that, with the deadline
	body          []byte
	prompt        []byte // JSON, as it was sent: prompts that begin alike are alike there, too
	tokens        int    // of its answers, perhaps
	writes        bool   // it is for texts, not for tokens or names
}

// read takes a request in, in time.
func (r *Router) read(ctx context.Context, w http.ResponseWriter, q *http.Request) (*request, *api.Error) {
	out := &request{Request: q, ctx: ctx}
	if q.Method == http.MethodPost {
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Now().Add(r.o.Stall)) // what cannot have one is a test
		var err error
		out.body, err = io.ReadAll(http.MaxBytesReader(w, q.Body, r.o.Body))
		control.SetReadDeadline(time.Time{})
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			return nil, coded(http.StatusRequestEntityTooLarge, "body_too_large", "the body has more than %d bytes, which is the most that this router reads", large.Limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, coded(http.StatusRequestTimeout, "slow_client", "the request did not come in time")
		case err != nil:
			return nil, coded(http.StatusBadRequest, "short_body", "the body ends early")
		}
	}
	out.writes = q.URL.Path == "/v1/completions" || q.URL.Path == "/v1/chat/completions"
	if out.writes {
		out.guess()
	}
	return out, nil
}

// guess finds out what there is to do. What is wrong in a request a server says better.
func (q *request) guess() {
	var fields struct {
		Prompt   json.RawMessage `json:"prompt"`
		Messages json.RawMessage `json:"messages"`
		Most     json.RawMessage `json:"max_tokens"`
		MostNew  json.RawMessage `json:"max_completion_tokens"`
		N        json.RawMessage `json:"n"`
	}
	_ = json.Unmarshal(q.body, &fields)
	q.prompt = fields.Prompt
	if fields.Messages != nil {
		q.prompt = fields.Messages
	}
	q.tokens = usualTokens
	for _, f := range []json.RawMessage{fields.MostNew, fields.Most} {
		if n := 0; json.Unmarshal(f, &n) == nil && n > 0 {
			q.tokens = min(n, mostTokens)
		}
	}
	if n := 0; json.Unmarshal(fields.N, &n) == nil && n > 1 {
		q.tokens *= min(n, mostTokens)
	}
}

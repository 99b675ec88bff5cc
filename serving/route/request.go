package route

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/krait-ml/krait/internal/lobby"
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
	*body                         // nil: it has none
	ctx           context.Context // that, with the deadline
	who           string          // a key, or an address
	need          need
	writes        bool // it is for texts, not for tokens or names
}

// read takes a request in.
func (r *Router) read(ctx context.Context, w http.ResponseWriter, q *http.Request) (*request, *api.Error) {
	who, err := r.who(q)
	if err != nil {
		return nil, err
	}
	out := &request{Request: q, ctx: ctx, who: who, writes: q.URL.Path == "/v1/completions" || q.URL.Path == "/v1/chat/completions"}
	if q.Method == http.MethodPost {
		if out.body, err = r.upload(w, q, who); err != nil {
			return nil, err
		}
	}
	if out.writes {
		out.need = r.guess(q.Header.Get("Authorization"), out.bytes())
	}
	return out, nil
}

// who names a request's client: its key, or where there are no keys its host.
func (r *Router) who(q *http.Request) (string, *api.Error) {
	keys := r.keys.Load()
	if keys == nil {
		return lobby.Who(q.RemoteAddr), nil
	}
	return keys.Tenant(q)
}

// guess finds out what a request has a machine do. What is wrong in a request a server says better.
// The caches of servers keep tenants apart.
func (r *Router) guess(tenant string, data []byte) need {
	var fields struct {
		Prompt   json.RawMessage `json:"prompt"`
		Messages json.RawMessage `json:"messages"`
		Most     json.RawMessage `json:"max_tokens"`
		MostNew  json.RawMessage `json:"max_completion_tokens"`
		N        json.RawMessage `json:"n"`
	}
	_ = json.Unmarshal(data, &fields)
	prompt := fields.Prompt // JSON as it was sent: prompts that begin alike are alike there, too
	if fields.Messages != nil {
		prompt = fields.Messages
	}
	tokens := usualTokens
	for _, f := range []json.RawMessage{fields.MostNew, fields.Most} {
		if n := 0; json.Unmarshal(f, &n) == nil && n > 0 {
			tokens = min(n, mostTokens)
		}
	}
	if n := 0; json.Unmarshal(fields.N, &n) == nil && n > 1 {
		tokens *= min(n, mostTokens)
	}
	return need{blocks: blocks(r.seed, []byte(tenant), prompt), bytes: len(prompt), tokens: tokens}
}

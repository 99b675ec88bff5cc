package route

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/krait-ml/krait/internal/balance"
	"github.com/krait-ml/krait/internal/lobby"
	"github.com/krait-ml/krait/serving/internal/api"
)

// usualTokens is the estimate of an answer's tokens without max_tokens. Otherwise it is max_tokens,
// up to [balance.MostTokens].
const usualTokens = 256

// request is a client's request.
type request struct {
	*http.Request                 // its context ends when the client disconnects
	*body                         // nil: none
	ctx           context.Context // the client's, with the deadline
	who           string          // tenant or address
	need          balance.Need
	writes        bool // it generates text
}

// read authenticates a request and reads its body.
func (r *Router) read(ctx context.Context, w http.ResponseWriter, q *http.Request) (*request, *api.Error) {
	who, err := r.who(q)
	if err != nil {
		return nil, err
	}
	out := &request{Request: q, ctx: ctx, who: who, writes: slices.Contains([]string{"/v1/completions", "/v1/chat/completions", "/v1/responses"}, q.URL.Path)}
	if q.Method == http.MethodPost {
		if out.body, err = r.upload(w, q, who); err != nil {
			return nil, err
		}
	}
	if out.writes {
		out.need = r.guess(q.Header.Get("Authorization")+q.Header.Get("X-Api-Key"), out.bytes())
	}
	return out, nil
}

// who returns a request's client: its key's tenant, or without keys its address.
func (r *Router) who(q *http.Request) (string, *api.Error) {
	keys := r.keys.Load()
	if keys == nil {
		return lobby.Host(q.RemoteAddr), nil
	}
	return keys.Tenant(q)
}

// guess estimates a request's work. It ignores what is invalid: the server reports that. Tenants do
// not share prefix caches.
func (r *Router) guess(tenant string, data []byte) balance.Need {
	var fields struct {
		Prompt   json.RawMessage `json:"prompt"`
		Messages json.RawMessage `json:"messages"`
		Input    json.RawMessage `json:"input"` // of /v1/responses
		Most     json.RawMessage `json:"max_tokens"`
		MostNew  json.RawMessage `json:"max_completion_tokens"`
		MostOut  json.RawMessage `json:"max_output_tokens"`
		N        json.RawMessage `json:"n"`
	}
	_ = json.Unmarshal(data, &fields)
	prompt := fields.Prompt // raw JSON: prompts with a common prefix have one there, too
	for _, f := range []json.RawMessage{fields.Messages, fields.Input} {
		if f != nil {
			prompt = f
		}
	}
	tokens := usualTokens
	for _, f := range []json.RawMessage{fields.MostOut, fields.MostNew, fields.Most} {
		if n := 0; json.Unmarshal(f, &n) == nil && n > 0 {
			tokens = min(n, balance.MostTokens)
		}
	}
	if n := 0; json.Unmarshal(fields.N, &n) == nil && n > 1 {
		tokens *= min(n, balance.MostTokens)
	}
	return balance.Need{Blocks: balance.Blocks(r.seed, []byte(tenant), prompt), Bytes: len(prompt), Tokens: tokens}
}

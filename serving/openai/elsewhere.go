package openai

import (
	"encoding/binary"
	"hash/fnv"
	"net/http"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/splitmix"
)

// routingTokens is how many of a prompt's first tokens choose its prefill server.
const routingTokens = 64

// namedPrefill returns the prefill server that a router chose for a request; nil: this server
// chooses.
func (s *Server) namedPrefill(r *http.Request) (krait.Prefiller, error) {
	name := r.Header.Get("Krait-Prefill")
	if name == "" {
		return nil, nil
	}
	i := slices.Index(s.o.PrefillNames, name)
	if i < 0 {
		return nil, coded(http.StatusBadRequest, "invalid_request_error", "unknown_prefill", "Krait-Prefill: unknown prefill server %s; give krait route and its servers the same --prefill", short(name))
	}
	return s.o.Prefill[i], nil
}

// choosePrefill returns the prefill server for a prompt by rendezvous hashing over its first
// tokens: prompts with a common prefix share a server's prefix cache, also when servers come and go
// (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998). nil: none is
// reachable, and this server prefills the prompt.
func (s *Server) choosePrefill(prompt []int) krait.Prefiller {
	var to krait.Prefiller
	best := uint64(0)
	for i, p := range s.o.Prefill {
		if p.Down() {
			continue
		}
		h := fnv.New64a()
		binary.Write(h, binary.LittleEndian, int64(i))
		for _, id := range prompt[:min(len(prompt), routingTokens)] {
			binary.Write(h, binary.LittleEndian, int64(id))
		}
		if n := splitmix.Mix(h.Sum64()); to == nil || n > best {
			to, best = p, n
		}
	}
	return to
}

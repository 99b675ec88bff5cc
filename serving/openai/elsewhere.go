package openai

import (
	"encoding/binary"
	"hash/fnv"
	"net/http"
	"slices"

	"github.com/krait-ml/krait"
)

// alike is how many of a prompt's first tokens say who reads it.
const alike = 64

// named is who a router chose to read a request's prompts, of those that this server knows; nil: the
// server chooses.
func (s *Server) named(r *http.Request) (krait.Prefiller, error) {
	name := r.Header.Get("Krait-Prefill")
	if name == "" {
		return nil, nil
	}
	i := slices.Index(s.o.PrefillNames, name)
	if i < 0 {
		return nil, coded(http.StatusBadRequest, "invalid_request_error", "unknown_prefill", "the header Krait-Prefill names %s, whom this server does not know: give krait route and its servers the same --prefill", short(name))
	}
	return s.o.Prefill[i], nil
}

// elsewhere is who reads a prompt: of those that are reached, the one that draws the highest number
// together with the prompt's beginning, so that prompts which begin alike go where that was read
// before, and stay there when machines come and go (Thaler and Ravishankar, "Using
// name-based mappings to increase hit rates", 1998). nil: this server reads it.
func (s *Server) elsewhere(prompt []int) krait.Prefiller {
	var to krait.Prefiller
	best := uint64(0)
	for i, p := range s.o.Prefill {
		if p.Down() {
			continue
		}
		h := fnv.New64a()
		binary.Write(h, binary.LittleEndian, int64(i))
		for _, id := range prompt[:min(len(prompt), alike)] {
			binary.Write(h, binary.LittleEndian, int64(id))
		}
		if n := mix(h.Sum64()); to == nil || n > best {
			to, best = p, n
		}
	}
	return to
}

// mix spreads what differs in a few bits over all of them (the end of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

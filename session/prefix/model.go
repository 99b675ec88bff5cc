package prefix

import (
	"fmt"
	"math"
)

// Grain is the distance in tokens of the snapshots that a prompt can leave in an engine's prefix
// cache. Cutting a prompt at its multiples changes no bit.
const Grain = 64

// Model has the costs of a sequence: a·L + b·L² FLOPs to prefill L tokens, bytes of KV cache per
// token, and bytes of the recurrent states of all layers; and where it can leave snapshots.
type Model struct {
	FLOPsPerToken        float64 `json:"flops_per_token"`         // a
	FLOPsPerTokenSquared float64 `json:"flops_per_token_squared"` // b
	CacheBytes           int64   `json:"cache_bytes_per_token"`
	StateBytes           int64   `json:"state_bytes"` // 0: attention only
	// Grain is the number of tokens at whose multiples a prompt leaves snapshots ([Marks]). 0 and 1
	// are the published rules.
	Grain int `json:"grain,omitempty"`
}

// mostFLOPs per token cannot overflow.
const mostFLOPs = 1e100

// MostBytes is the largest capacity. With the limits of [Model.Check] no sum of bytes overflows.
const MostBytes = 1 << 62

// Check returns an error if the costs are invalid.
func (m Model) Check() error {
	for _, x := range []float64{m.FLOPsPerToken, m.FLOPsPerTokenSquared} {
		if !(x >= 0 && x <= mostFLOPs) {
			return fmt.Errorf("%g FLOPs per token and %g per token squared: both must be from 0 to %g", m.FLOPsPerToken, m.FLOPsPerTokenSquared, float64(mostFLOPs))
		}
	}
	switch most := int64(math.MaxInt64) / (8 * MaxTokens); {
	case m.CacheBytes < 0 || m.StateBytes < 0:
		return fmt.Errorf("%d cache bytes per token and %d state bytes: neither may be negative", m.CacheBytes, m.StateBytes)
	case m.CacheBytes == 0 && m.StateBytes == 0:
		return fmt.Errorf("0 cache bytes per token and 0 state bytes: there is nothing to cache")
	case m.CacheBytes > most || m.StateBytes > most:
		return fmt.Errorf("%d cache bytes per token and %d state bytes: neither may be over %d", m.CacheBytes, m.StateBytes, most)
	case m.Grain < 0 || m.Grain > MaxTokens:
		return fmt.Errorf("the grain is %d tokens; it must be from 1 to %d", m.Grain, MaxTokens)
	}
	return nil
}

// FLOPs returns the cost of prefilling a number of tokens. The conversions prevent fused
// multiply-adds, so that all machines agree.
func (m Model) FLOPs(tokens int) float64 {
	l := float64(tokens)
	return float64(m.FLOPsPerToken*l) + float64(m.FLOPsPerTokenSquared*float64(l*l))
}

// Bytes returns the bytes of tokens, with a state or without.
func (m Model) Bytes(tokens int, state bool) int64 {
	b := int64(tokens) * m.CacheBytes
	if state {
		b += m.StateBytes
	}
	return b
}

// Marks are the depths at which a prompt leaves snapshots during prefill; 0: none.
type Marks struct {
	// Branch is where the prompt diverges from the tree, beyond the hit.
	Branch int
	// End is the last multiple of the grain that leaves a token to compute, so that the same prompt
	// is not prefilled again. It is 0 if the hit or Branch is as deep.
	End int
}

// Next returns the first mark beyond a depth, or 0.
func (m Marks) Next(depth int) int {
	if m.Branch > depth {
		return m.Branch
	}
	if m.End > depth {
		return m.End
	}
	return 0
}

// Hints are depths in a prompt, in tokens, at which later prompts may part from it.
type Hints struct {
	Breakpoints []int // that the client asked for
	Messages    []int // ends of messages in order, up to that of the last one; nil: unknown
}

// At returns the marks with those of hints, down to a multiple of the grain: the deepest breakpoint
// beyond the hit in place of the branch, or where neither is, the deepest end of a message before
// the last; and the end of the last message in place of the prompt's end.
func (m Model) At(k Marks, h Hints, hit, prompt int) Marks {
	if m.StateBytes == 0 {
		return k.Beyond(hit)
	}
	down := func(at int) int {
		at = max(min(at, prompt-1), 0)
		return at - at%max(m.Grain, 1)
	}
	if last := len(h.Messages) - 1; last >= 0 {
		if end := down(h.Messages[last]); end > hit && k.End > 0 {
			k.End = end
		}
		for _, at := range h.Messages[:last] {
			if at = down(at); at > hit && k.Branch <= hit {
				k.Branch = at
			}
		}
	}
	deepest := hit
	for _, at := range h.Breakpoints {
		deepest = max(deepest, down(at))
	}
	if deepest > hit {
		k.Branch = deepest
	}
	return k.Beyond(hit)
}

// Beyond returns those of the marks that are deeper than a hit, each once.
func (m Marks) Beyond(hit int) Marks {
	if m.Branch <= hit {
		m.Branch = 0
	}
	if m.End <= max(hit, m.Branch) {
		m.End = 0
	}
	return m
}

// marks returns the marks of a prompt of which the tree has the first matched tokens, and the
// states after hit; most leaves one token to compute. With a grain of one token they are as
// published: at the branch only, and not where the whole prompt matched.
func (m Model) marks(matched, most, hit int) (k Marks) {
	if m.Grain <= 1 {
		if matched <= most {
			k.Branch = matched
		}
	} else {
		k.Branch, k.End = min(matched, most)/m.Grain*m.Grain, most/m.Grain*m.Grain
	}
	return k.Beyond(hit)
}

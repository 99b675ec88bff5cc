package prefix

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Request is a prompt and what came of it. Their times do not go back.
type Request struct {
	At       float64 // in seconds
	Tokens   Tokens  // input and, after it, output that was fed
	InputLen int
}

// Input is the prompt.
func (r Request) Input() Tokens { return r.Tokens.Prefix(r.InputLen) }

// Policy is a cache of prefixes.
type Policy interface {
	// Serve looks a request up, keeps what is to be kept of it, and returns how many
	// tokens of its input need not be computed.
	Serve(Request) int
	Bytes() int64   // in use
	Evictions() int // so far
}

// None keeps nothing.
type None struct{}

func (None) Serve(Request) int { return 0 }
func (None) Bytes() int64      { return 0 }
func (None) Evictions() int    { return 0 }

// Policies are those that are compared where none is named.
var Policies = []string{"none", "blocks32", "lru", "flop:0.5", "flop:2", "tuned"}

// NewPolicy makes a policy by its name: none, blocksN of N tokens, lru, flop:α, or tuned.
// The capacity is in bytes.
func NewPolicy(name string, m Model, capacity int64) (Policy, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if name != "none" && (capacity < 1 || capacity > MostBytes) {
		return nil, fmt.Errorf("a capacity of %d bytes: it is from 1 to %d; policy none is without a cache", capacity, int64(MostBytes))
	}
	switch name {
	case "none":
		return None{}, nil
	case "lru":
		return NewTree(m, capacity, 0), nil
	case "tuned":
		return NewTuned(m, capacity), nil
	}
	if text, ok := strings.CutPrefix(name, "blocks"); ok {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 || size > MaxTokens {
			return nil, fmt.Errorf("policy %q: a block has 1 to %d tokens, as in blocks32", name, MaxTokens)
		}
		return NewBlocks(m, capacity, size), nil
	}
	if text, ok := strings.CutPrefix(name, "flop:"); ok {
		alpha, err := strconv.ParseFloat(text, 64)
		if err != nil || !(alpha >= 0) || math.IsInf(alpha, 0) {
			return nil, fmt.Errorf("policy %q: α is a number that is not negative, as in flop:0.5", name)
		}
		return NewTree(m, capacity, alpha), nil
	}
	return nil, fmt.Errorf("policy %q: it is none, blocks32 (or of another number of tokens), lru, flop:α or tuned", name)
}

// Result is what a policy makes of a trace.
type Result struct {
	Policy      string   `json:"policy"`
	Hits        []int    `json:"hits"` // per request, tokens that need not be computed
	InputTokens int64    `json:"input_tokens"`
	HitTokens   int64    `json:"hit_tokens"`
	FLOPsSaved  float64  `json:"flops_saved"`
	FLOPs       float64  `json:"flops"` // of all prefills, without a cache
	Evictions   int      `json:"evictions"`
	Alpha       *float64 `json:"alpha"` // that was chosen; null where none was
}

// Replay holds a policy against a trace.
func Replay(name string, m Model, capacity int64, trace []Request) (*Result, error) {
	p, err := NewPolicy(name, m, capacity)
	if err != nil {
		return nil, err
	}
	out := &Result{Policy: name, Hits: make([]int, len(trace))}
	for i, r := range trace {
		hit := p.Serve(r)
		out.Hits[i] = hit
		out.InputTokens += int64(r.InputLen)
		out.HitTokens += int64(hit)
		out.FLOPs += m.FLOPs(r.InputLen)
		out.FLOPsSaved += m.FLOPs(hit)
	}
	out.Evictions = p.Evictions()
	if t, ok := p.(*Tuned); ok {
		if alpha, ok := t.Alpha(); ok {
			out.Alpha = &alpha
		}
	}
	return out, nil
}

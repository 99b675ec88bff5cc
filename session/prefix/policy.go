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
var Policies = []string{"none", "blocks32", "lru", "flop:0.5", "flop:2", "tuned", "retuned"}

// NewPolicy makes a policy by its name: none, blocksN of N tokens, lru, flop:α, tuned or
// retuned. The capacity is in bytes.
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
	case "retuned":
		return NewRetuned(m, capacity), nil
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
	return nil, fmt.Errorf("policy %q: it is none, blocks32 (or of another number of tokens), lru, flop:α, tuned or retuned", name)
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

// Simulation holds a policy against a trace.
type Simulation struct {
	Policy   string // as [NewPolicy] takes it
	Model    Model
	Capacity int64          // in bytes
	Progress func(done int) // requests; nil: nobody asks
	After    func(Policy)   // is given the policy when all is served; nil: nobody asks
}

// Replay holds a policy against a trace.
func Replay(name string, m Model, capacity int64, trace []Request) (*Result, error) {
	return Simulation{Policy: name, Model: m, Capacity: capacity}.Run(trace)
}

// Run serves the requests of a trace.
func (s Simulation) Run(trace []Request) (*Result, error) {
	p, err := NewPolicy(s.Policy, s.Model, s.Capacity)
	if err != nil {
		return nil, err
	}
	return s.serve(p, trace), nil
}

// serve lets a policy serve the requests of a trace.
func (s Simulation) serve(p Policy, trace []Request) *Result {
	out := &Result{Policy: s.Policy, Hits: make([]int, len(trace))}
	for i, r := range trace {
		hit := p.Serve(r)
		out.Hits[i] = hit
		out.InputTokens += int64(r.InputLen)
		out.HitTokens += int64(hit)
		out.FLOPs += s.Model.FLOPs(r.InputLen)
		out.FLOPsSaved += s.Model.FLOPs(hit)
		if s.Progress != nil {
			s.Progress(i + 1)
		}
	}
	out.Evictions = p.Evictions()
	if t, ok := p.(interface{ Alpha() (float64, bool) }); ok {
		if alpha, ok := t.Alpha(); ok {
			out.Alpha = &alpha
		}
	}
	if s.After != nil {
		s.After(p)
	}
	return out
}

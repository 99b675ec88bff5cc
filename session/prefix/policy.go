package prefix

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Request is a prompt and its output. Times do not decrease.
type Request struct {
	At       float64 // in seconds
	Tokens   Tokens  // input and output that was fed
	InputLen int
}

// Input returns the prompt.
func (r Request) Input() Tokens { return r.Tokens.Prefix(r.InputLen) }

// Policy is a prefix cache.
type Policy interface {
	// Serve looks a request up, admits it, and returns the tokens of its input that hit.
	Serve(Request) int
	Bytes() int64   // in use
	Evictions() int // so far
}

// None caches nothing.
type None struct{}

func (None) Serve(Request) int { return 0 }
func (None) Bytes() int64      { return 0 }
func (None) Evictions() int    { return 0 }

// Policies are compared by default.
var Policies = []string{"none", "blocks32", "lru", "flop:0.5", "flop:2", "tuned", "reuse"}

// Default is the policy of caches for which none is given.
const Default = "reuse"

// treePolicies are those with a tree.
const treePolicies = "lru, leaves, flop:α, released:α, tuned or reuse"

// NewPolicy makes a policy by its name: none, blocksN of N tokens, lru, leaves, flop:α, released:α,
// marconi, tuned or reuse. The capacity is in bytes.
func NewPolicy(name string, m Model, capacity int64) (Policy, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if name != "none" && (capacity < 1 || capacity > MostBytes) {
		return nil, fmt.Errorf("a capacity of %d bytes; it must be from 1 to %d, and policy none has no cache", capacity, int64(MostBytes))
	}
	switch name {
	case "none":
		return None{}, nil
	case "lru":
		return NewTree(m, capacity, 0), nil
	case "leaves":
		t := NewTree(m, capacity, 0)
		t.rule.leaves = true
		return t, nil
	case "marconi":
		return &published{Tree: NewTree(m, capacity, 0)}, nil
	case "tuned":
		return NewTuned(m, capacity), nil
	case "reuse":
		return NewReuse(m, capacity), nil
	}
	if text, ok := strings.CutPrefix(name, "blocks"); ok {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 || size > MaxTokens {
			return nil, fmt.Errorf("policy %q: a block has 1 to %d tokens, as in blocks32", name, MaxTokens)
		}
		return NewBlocks(m, capacity, size), nil
	}
	rule, text, _ := strings.Cut(name, ":")
	if rule != "flop" && rule != "released" {
		return nil, fmt.Errorf("policy %q: it must be none, blocks32 (or another number of tokens), marconi, %s", name, treePolicies)
	}
	alpha, err := strconv.ParseFloat(text, 64)
	if err != nil || !(alpha >= 0) || math.IsInf(alpha, 0) {
		return nil, fmt.Errorf("policy %q: α must be a number and not negative, as in flop:0.5", name)
	}
	t := NewTree(m, capacity, alpha)
	t.rule.released = rule == "released"
	return t, nil
}

// Result is the outcome of a policy on a trace.
type Result struct {
	Policy      string    `json:"policy"`
	Hits        []int     `json:"hits"` // tokens, per request
	InputTokens int64     `json:"input_tokens"`
	HitTokens   int64     `json:"hit_tokens"`
	FLOPsSaved  float64   `json:"flops_saved"`
	FLOPs       float64   `json:"flops"` // of all prefills, without a cache
	Evictions   int       `json:"evictions"`
	Alpha       *float64  `json:"alpha"`              // null: none was chosen
	Analysis    *Analysis `json:"analysis,omitempty"` // where asked for
}

// Simulation runs a policy on a trace.
type Simulation struct {
	Policy   string // as [NewPolicy] takes it
	Model    Model
	Capacity int64          // in bytes
	Analyze  bool           // fill in the result's analysis
	Progress func(done int) // requests; it may be nil
	After    func(Policy)   // gets the policy at the end; it may be nil
}

// Replay runs a policy on a trace.
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

// serve serves the requests of a trace.
func (s Simulation) serve(p Policy, trace []Request) *Result {
	out := &Result{Policy: s.Policy, Hits: make([]int, len(trace))}
	about := &analyst{m: s.Model, every: max(1, len(trace)/samples)}
	for i, r := range trace {
		hit := p.Serve(r)
		if s.Analyze {
			about.took(p, i+1, len(trace), r, hit)
		}
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
	if s.Analyze {
		out.Analysis = about.end()
	}
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

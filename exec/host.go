package exec

import (
	"fmt"
	"slices"
)

// SaveStates brings states that were kept to the host.
func (e *Engine) SaveStates(s *KeptStates) (*HostStates, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	return &HostStates{Tokens: s.Tokens, Data: cloned(s.data)}, nil
}

// LoadStates keeps states that come from the host.
func (e *Engine) LoadStates(s *HostStates) (*KeptStates, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if s.Tokens < 0 {
		return nil, fmt.Errorf("states after %d tokens", s.Tokens)
	}
	var sizes []int
	for _, h := range e.ofRanks() {
		sizes = append(sizes, h.run)
	}
	if err := fitHost("states", s.Data, sizes); err != nil {
		return nil, err
	}
	return &KeptStates{Tokens: s.Tokens, data: cloned(s.Data)}, nil
}

// SaveRows brings rows that were kept to the host.
func (e *Engine) SaveRows(r *KeptRows) (*HostRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	return &HostRows{From: r.From, To: r.To, Data: cloned(r.data)}, nil
}

// LoadRows keeps rows that come from the host.
func (e *Engine) LoadRows(r *HostRows) (*KeptRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if r.From < 0 || r.To < r.From {
		return nil, fmt.Errorf("rows of tokens %d to %d", r.From, r.To)
	}
	var sizes []int
	for _, h := range e.caches() {
		sizes = append(sizes, h.bytes(r.To-r.From))
	}
	if err := fitHost("rows", r.Data, sizes); err != nil {
		return nil, err
	}
	return &KeptRows{From: r.From, To: r.To, data: cloned(r.Data)}, nil
}

// fitHost checks that what comes from the host has the parts that the engine keeps.
func fitHost(what string, data [][]byte, sizes []int) error {
	if len(data) != len(sizes) {
		return fmt.Errorf("%s in %d parts; this engine keeps them in %d", what, len(data), len(sizes))
	}
	for i, d := range data {
		if len(d) != sizes[i] {
			return fmt.Errorf("part %d of %s has %d bytes; this engine keeps %d", i, what, len(d), sizes[i])
		}
	}
	return nil
}

func cloned(data [][]byte) [][]byte {
	out := make([][]byte, len(data))
	for i, d := range data {
		out[i] = slices.Clone(d)
	}
	return out
}

package exec

import "fmt"

// HostStates are [KeptStates] that were brought to the host, or come from there: a run
// of bytes per rank that has states.
type HostStates struct {
	Tokens int
	Data   [][]byte
}

// HostRows are [KeptRows] that were brought to the host, or come from there: for each cache of
// each rank the rows of the tokens.
type HostRows struct {
	From, To int
	Data     [][]byte
}

// SaveStates brings states that were kept to the host.
func (e *Engine) SaveStates(s *KeptStates) (*HostStates, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	out := &HostStates{Tokens: s.Tokens}
	for _, h := range e.ofRanks() {
		data := make([]byte, h.run)
		if err := e.machine.Read(h.rank, e.keptSlot(s), 0, data); err != nil {
			return nil, err
		}
		out.Data = append(out.Data, data)
	}
	return out, nil
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
	out, err := e.newKept(s.Tokens)
	if err != nil {
		return nil, err
	}
	for k, h := range e.ofRanks() {
		if err := e.machine.Write(h.rank, e.keptSlot(out), 0, s.Data[k]); err != nil {
			out.Free()
			return nil, err
		}
	}
	return out, nil
}

// SaveRows brings rows that were kept to the host.
func (e *Engine) SaveRows(r *KeptRows) (*HostRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	out := &HostRows{From: r.From, To: r.To}
	for _, h := range e.caches() {
		data := make([]byte, h.bytes(r.To-r.From))
		if err := e.machine.ReadRows(h.rank, h.buffer, r.rows(), data); err != nil {
			return nil, err
		}
		out.Data = append(out.Data, data)
	}
	return out, nil
}

// LoadRows keeps rows that come from the host, in pages of their own.
func (e *Engine) LoadRows(h *HostRows) (*KeptRows, error) {
	if err := e.lock(); err != nil {
		return nil, err
	}
	defer e.mu.Unlock()
	if h.From < 0 || h.To < h.From {
		return nil, fmt.Errorf("rows of tokens %d to %d", h.From, h.To)
	}
	var sizes []int
	for _, c := range e.caches() {
		sizes = append(sizes, c.bytes(h.To-h.From))
	}
	if err := fitHost("rows", h.Data, sizes); err != nil {
		return nil, err
	}
	r := e.newRows(h.From, h.To)
	if err := e.load(r, h.Data); err != nil {
		r.Free()
		return nil, err
	}
	return r, nil
}

// ownPages gives rows pages of their own.
func (e *Engine) ownPages(r *KeptRows) error {
	for at := r.From; at < r.To; {
		page, err := e.takePage()
		if err != nil {
			return err
		}
		end := min(r.To, (at/e.pages.tokens+1)*e.pages.tokens)
		r.pages = append(r.pages, keptPage{page, at, end})
		at = end
	}
	return nil
}

// load fills new pages.
func (e *Engine) load(r *KeptRows, data [][]byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := e.ownPages(r); err != nil {
		return err
	}
	for k, c := range e.caches() {
		if err := e.machine.WriteRows(c.rank, c.buffer, r.rows(), data[k]); err != nil {
			return err
		}
	}
	return nil
}

// rows are where the rows lie.
func (r *KeptRows) rows() (list []Rows) {
	at := r.From
	for _, k := range r.pages {
		list = append(list, Rows{k.page, at % r.pool.tokens, k.to - at})
		at = k.to
	}
	return list
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

package state

import "fmt"

// HostState is a [DeviceState] in host memory: a part for each rank that has recurrent states.
type HostState struct {
	Tokens int
	Data   [][]byte
}

// HostKV is a [DeviceKV] in host memory: the tokens' rows of each cache of each rank.
type HostKV struct {
	From, To int
	Data     [][]byte
}

// OffloadState copies states to the host.
func (s *Store) OffloadState(d *DeviceState) (*HostState, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	out := &HostState{Tokens: d.Tokens}
	for _, sh := range s.t.ranksWithState() {
		data := make([]byte, sh.run)
		if err := s.t.memory.ReadSlot(sh.rank, s.copySlot(d), 0, data); err != nil {
			return nil, err
		}
		out.Data = append(out.Data, data)
	}
	return out, nil
}

// LoadState copies states from the host.
func (s *Store) LoadState(h *HostState) (*DeviceState, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	if h.Tokens < 0 {
		return nil, fmt.Errorf("states after %d tokens; the number must not be negative", h.Tokens)
	}
	ranks := s.t.ranksWithState()
	if err := checkParts("states", h.Data, ranks, func(sh *shard) int { return sh.run }); err != nil {
		return nil, err
	}
	d, err := s.allocCopy(h.Tokens)
	if err != nil {
		return nil, err
	}
	for k, sh := range ranks {
		if err := s.t.memory.WriteSlot(sh.rank, s.copySlot(d), 0, h.Data[k]); err != nil {
			d.Free()
			return nil, err
		}
	}
	return d, nil
}

// OffloadKV copies a KV cache to the host.
func (s *Store) OffloadKV(kv *DeviceKV) (*HostKV, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	out := &HostKV{From: kv.From, To: kv.To}
	for _, sh := range s.t.caches() {
		data := make([]byte, sh.bytes(kv.To-kv.From))
		if err := s.t.memory.ReadRows(sh.rank, sh.buffer, kv.rows(), data); err != nil {
			return nil, err
		}
		out.Data = append(out.Data, data)
	}
	return out, nil
}

// LoadKV copies a KV cache from the host, to pages of its own.
func (s *Store) LoadKV(h *HostKV) (*DeviceKV, error) {
	if err := s.gate.Lock(); err != nil {
		return nil, err
	}
	defer s.gate.Unlock()
	if h.From < 0 || h.To < h.From {
		return nil, fmt.Errorf("a KV cache of tokens %d to %d", h.From, h.To)
	}
	if err := checkParts("the KV cache", h.Data, s.t.caches(), func(sh *shard) int { return sh.bytes(h.To - h.From) }); err != nil {
		return nil, err
	}
	kv := s.newKV(h.From, h.To)
	if err := s.fillPages(kv, h.Data); err != nil {
		kv.Free()
		return nil, err
	}
	return kv, nil
}

// fillPages allocates the pages of a KV cache, and writes them.
func (s *Store) fillPages(kv *DeviceKV, data [][]byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := s.allocPages(kv); err != nil {
		return err
	}
	for k, sh := range s.t.caches() {
		if err := s.t.memory.WriteRows(sh.rank, sh.buffer, kv.rows(), data[k]); err != nil {
			return err
		}
	}
	return nil
}

// rows lists where the tokens' rows are.
func (kv *DeviceKV) rows() (list []PageRows) {
	at := kv.From
	for _, x := range kv.pages {
		list = append(list, PageRows{x.page, at % kv.pool.tokens, x.to - at})
		at = x.to
	}
	return list
}

// checkParts checks that host data has the parts that the engine has, each of its size.
func checkParts[P any](name string, data [][]byte, parts []P, size func(P) int) error {
	if len(data) != len(parts) {
		return fmt.Errorf("%s in %d parts; this engine has them in %d", name, len(data), len(parts))
	}
	for i, d := range data {
		if n := size(parts[i]); len(d) != n {
			return fmt.Errorf("part %d of %s has %d bytes; this engine has %d", i, name, len(d), n)
		}
	}
	return nil
}

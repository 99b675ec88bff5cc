package state

// Export is the state of a sequence in host memory, as the ranks hold it, maybe compressed by
// [Codecs]. Engines whose ranks hold states in the same way resume from it; any engine of the model
// resumes from a [Snapshot].
type Export struct {
	Tokens int        // of the sequence
	Codecs string     // that State and KV are compressed by, as [Codecs.String] names them; empty: none
	Salt   string     // of the prefix cache that the entry belongs to; empty: shared by all
	IDs    []int32    // the tokens, or nil
	Exact  bool       // of a prefix cache: as of any prompt that begins with the tokens
	State  *HostState // recurrent states after them; nil: none
	KV     []*HostKV  // KV cache, by consecutive ranges of the tokens
}

// Export copies the state of a sequence to the host.
func (s *Store) Export(slot int) (*Export, error) {
	d, err := s.CopyState(slot)
	if err != nil {
		return nil, err
	}
	defer d.Free()
	kv, err := s.ShareKV(slot, 0, d.Tokens)
	if err != nil {
		return nil, err
	}
	defer kv.Free()
	out := &Export{Tokens: d.Tokens, KV: make([]*HostKV, 1)}
	if out.State, err = s.OffloadState(d); err == nil {
		out.KV[0], err = s.OffloadKV(kv)
	}
	return out, err
}

// Import lets a sequence resume from an export without codecs. One that does not fit this engine is
// an error, and leaves the sequence as it was.
func (s *Store) Import(slot int, x *Export) error {
	d, err := s.LoadState(x.State)
	if err != nil {
		return err
	}
	defer d.Free()
	var list []*DeviceKV
	for _, h := range x.KV {
		kv, err := s.LoadKV(h)
		if err != nil {
			return err
		}
		defer kv.Free()
		list = append(list, kv)
	}
	return s.Resume(slot, d, list...)
}

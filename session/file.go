package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/lowering"
)

// Save writes the state of a slot's sequence for [Session.Load], in the session's codecs.
func (s *Session) Save(slot int, w io.Writer) error {
	o, err := s.origin()
	if err != nil {
		return err
	}
	k, err := s.engine.Export(slot)
	if err != nil {
		return err
	}
	k.Codecs = s.codecs.String()
	if p := s.codecs; p != nil {
		if k.State, err = p.EncodeState(k.State); err == nil {
			k.KV[0], err = p.EncodeKV(k.KV[0])
		}
		if err != nil {
			return fmt.Errorf("the sequence cannot be saved: %w", err)
		}
	}
	return statefile.Write(w, o, k)
}

// Load restores a slot's sequence from what [Session.Save] wrote, in whatever codecs. An error in the
// file leaves the sequence unchanged.
func (s *Session) Load(slot int, r io.Reader) error {
	o, err := s.origin()
	if err != nil {
		return err
	}
	k, err := statefile.Read(r, o)
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	if k.State == nil || len(k.KV) != 1 {
		return fmt.Errorf("the sequence cannot be loaded: the file has %d runs of tokens and is not a saved sequence", len(k.KV))
	}
	p, err := s.engine.Codecs(k.Codecs)
	if err == nil && p != nil {
		if k.State, err = p.DecodeState(k.State); err == nil {
			k.KV[0], err = p.DecodeKV(k.KV[0])
		}
	}
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	return s.engine.Import(slot, k)
}

// Origin identifies the model, its weights and its layout, for states outside of this process. The
// first call reads the weights.
func (s *Session) Origin() (statefile.Origin, error) { return s.origin() }

// newOrigin fingerprints the model and the placement and formats of its states.
func newOrigin(m Model, schedules []*lowering.Schedule) (statefile.Origin, error) {
	weights, err := m.Fingerprint()
	ranks := fmt.Sprintf("%d ranks by strategy %s", m.Graph.Ranks, m.Strategy)
	if m.Graph.Ranks == 1 {
		ranks = "1 rank"
	}
	sum := sha256.New()
	for _, s := range schedules {
		fmt.Fprintln(sum, s.Rank, s.Ranks, s.Bytes[lowering.State])
		for i := range s.Buffers {
			if b := &s.Buffers[i]; b.Space == lowering.State || b.Space == lowering.Cache {
				name, t := b.State()
				fmt.Fprintln(sum, name, t, b.Space, b.Offset, b.Bytes, s.Pieces(b))
			}
		}
	}
	return statefile.Origin{Model: weights, Name: m.Name, Layout: hex.EncodeToString(sum.Sum(nil)), Ranks: ranks, States: m.States}, err
}

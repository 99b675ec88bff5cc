package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// Save writes the state of a slot's sequence for [Session.Load], in the session's codecs.
func (s *Session) Save(slot int, w io.Writer) error {
	o, err := s.origin()
	if err != nil {
		return err
	}
	x, err := s.engine.Export(slot)
	if err != nil {
		return err
	}
	x.Codecs = s.codecs.String()
	if c := s.codecs; c != nil {
		if x.State, err = c.EncodeState(x.State); err == nil {
			x.KV[0], err = c.EncodeKV(x.KV[0])
		}
		if err != nil {
			return fmt.Errorf("the sequence cannot be saved: %w", err)
		}
	}
	return statefile.Write(w, o, x)
}

// Load restores a slot's sequence from a file of [Session.Save], in whatever codecs. An error in
// the file leaves the sequence unchanged.
func (s *Session) Load(slot int, r io.Reader) error {
	o, err := s.origin()
	if err != nil {
		return err
	}
	x, err := statefile.Read(r, o)
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	if x.State == nil || len(x.KV) != 1 {
		return fmt.Errorf("the sequence cannot be loaded: the file has %d runs of tokens and is not a saved sequence", len(x.KV))
	}
	c, err := s.engine.Codecs(x.Codecs)
	if err == nil && c != nil {
		if x.State, err = c.DecodeState(x.State); err == nil {
			x.KV[0], err = c.DecodeKV(x.KV[0])
		}
	}
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	x.Codecs = ""
	return s.engine.Import(slot, x)
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
	if n := schedules[0].Mesh.Along(graph.PP); n > 1 {
		ranks += fmt.Sprintf(" in each of %d pipeline stages", n)
	}
	sum := sha256.New()
	for _, s := range schedules {
		fmt.Fprintln(sum, s.World(), s.Ranks, s.Bytes[lowering.State])
		for i := range s.Buffers {
			if b := &s.Buffers[i]; b.Space == lowering.State || b.Space == lowering.Cache {
				name, t := b.State()
				fmt.Fprintln(sum, name, t, b.Space, b.Offset, b.Bytes, s.Pieces(b))
			}
		}
	}
	return statefile.Origin{Model: weights, Name: m.Name, Layout: hex.EncodeToString(sum.Sum(nil)), Ranks: ranks, States: m.States}, err
}

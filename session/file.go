package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/saved"
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
	out := &saved.Kept{Tokens: k.Tokens, Codecs: s.codecs.String(), States: k.States, Rows: []*exec.HostRows{k.Rows}}
	if p := s.codecs; p != nil {
		if out.States, err = p.PackStates(k.States); err == nil {
			out.Rows[0], err = p.PackRows(k.Rows)
		}
		if err != nil {
			return fmt.Errorf("the sequence cannot be saved: %w", err)
		}
	}
	return saved.Write(w, o, out)
}

// Load restores a slot's sequence from what [Session.Save] wrote, in whatever codecs. An error in the
// file leaves the sequence unchanged.
func (s *Session) Load(slot int, r io.Reader) error {
	o, err := s.origin()
	if err != nil {
		return err
	}
	k, err := saved.Read(r, o)
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	if k.States == nil || len(k.Rows) != 1 {
		return fmt.Errorf("the sequence cannot be loaded: the file has %d runs of tokens and is not a saved sequence", len(k.Rows))
	}
	x := &exec.Exported{Tokens: k.Tokens, States: k.States, Rows: k.Rows[0]}
	p, err := s.engine.Packing(k.Codecs)
	if err == nil && p != nil {
		if x.States, err = p.UnpackStates(x.States); err == nil {
			x.Rows, err = p.UnpackRows(x.Rows)
		}
	}
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	return s.engine.Import(slot, x)
}

// Origin identifies the model, its weights and its layout, for states outside of this process. The
// first call reads the weights.
func (s *Session) Origin() (saved.Origin, error) { return s.origin() }

// newOrigin fingerprints the model and the placement and formats of its states.
func newOrigin(m Model, schedules []*lowering.Schedule) (saved.Origin, error) {
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
	return saved.Origin{Model: weights, Name: m.Name, Layout: hex.EncodeToString(sum.Sum(nil)), Ranks: ranks, States: m.States}, err
}

package krait

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// Save writes all that the sequence keeps, for [Sequence.Load]: as the ranks hold it, to
// the last bit, or in [Options.StateCodec], which the header then names. The first time the model's weights are read, since what is written names
// them by a fingerprint.
func (s *Sequence) Save(w io.Writer) error {
	o, err := s.m.origin()
	if err != nil {
		return err
	}
	k, err := s.m.engine.Export(s.slot)
	if err != nil {
		return err
	}
	k.Codecs = s.m.packing.String()
	if p := s.m.packing; p != nil {
		if k.State, err = p.EncodeState(k.State); err == nil {
			k.KV[0], err = p.EncodeKV(k.KV[0])
		}
		if err != nil {
			return fmt.Errorf("the sequence cannot be saved: %w", err)
		}
	}
	return statefile.Write(w, o, k)
}

// Load lets the sequence go on from what [Sequence.Save] wrote, by a model of the same
// graph and weights, on as many ranks, by the same strategy and with states in the same
// formats; it may be on another device. An error about what is read leaves the sequence as
// it was. No byte more is read than was written. What is in a codec is read whatever the
// model's own is. [Sequence.Restore] asks for less.
func (s *Sequence) Load(r io.Reader) error {
	o, err := s.m.origin()
	if err != nil {
		return err
	}
	k, err := statefile.Read(r, o)
	if err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	if k.State == nil || len(k.KV) != 1 {
		return fmt.Errorf("the sequence cannot be loaded: it has %d stretches of tokens, and is no sequence that was saved", len(k.KV))
	}
	if err := s.m.unpack(k); err != nil {
		return fmt.Errorf("the sequence cannot be loaded: %w", err)
	}
	return s.m.engine.Import(s.slot, k)
}

// unpack brings back what is in codecs.
func (m *Model) unpack(x *state.Export) error {
	p, err := m.engine.Codecs(x.Codecs)
	if err != nil || p == nil {
		return err
	}
	if x.State, err = p.DecodeState(x.State); err == nil {
		x.KV[0], err = p.DecodeKV(x.KV[0])
	}
	return err
}

// fingerprints say what sequences of the model go on in.
func (m *Model) fingerprints(s Sharding) (statefile.Origin, error) {
	weights, err := m.fingerprint()
	ranks := fmt.Sprintf("%d ranks by strategy %s", m.graph.Ranks, cmp.Or(s.Strategy, s.Place, "channel"))
	if m.graph.Ranks == 1 {
		ranks = "1 rank"
	}
	return statefile.Origin{Model: weights, Name: m.Name, Layout: layout(m.engine.Schedules()), Ranks: ranks, States: cmp.Or(s.States, "f32")}, err
}

// fingerprint is one of the graph, without names of outputs, and of the weights that it has.
func (m *Model) fingerprint() (string, error) {
	if err := m.lock(); err != nil { // or else Close would unmap the weights
		return "", err
	}
	defer m.mu.Unlock()
	sum := sha256.New()
	printed(sum, m.source.graph)
	table := crc32.MakeTable(crc32.Castagnoli)
	err := files.Guard(func() error {
		for _, n := range m.source.graph.Leaves("param") {
			for _, p := range n.Storage.Pieces {
				a, err := m.source.weights(p.Tensor)
				if err != nil {
					return err
				}
				fmt.Fprintln(sum, p.Tensor, a.DType, a.Shape, crc32.Checksum(a.Data, table))
			}
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// printed writes a graph, without names of outputs.
func printed(w io.Writer, g *graph.Graph) {
	for line := range strings.Lines(graph.Print(g)) {
		if !strings.HasPrefix(line, "output ") {
			io.WriteString(w, line)
		}
	}
}

// graphPrint is a fingerprint of a graph alone.
func graphPrint(g *graph.Graph) string {
	sum := sha256.New()
	printed(sum, g)
	return hex.EncodeToString(sum.Sum(nil))
}

// layout is a fingerprint of where the ranks have which states, and in which formats.
func layout(schedules []*lowering.Schedule) string {
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
	return hex.EncodeToString(sum.Sum(nil))
}

package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
)

// Codecs compress what the host holds of sequences: in host memory, in files and on the way to
// other machines. A rank's part of a state is a row, and so is its part of a token in a KV cache: n
// elements take ceil(n/block) blocks, and the error of each is at most [codec.Bound] of its block.
// States of a kind without a codec stay as they are. A value that is not finite is an error that
// names its state, since its block could hold nothing else. Codecs may be used from several
// goroutines.
type Codecs struct {
	kinds  map[graph.StateKind]graph.Codec
	names  map[string]graph.Codec // by the model's states
	states []layout               // in the order of HostState
	rows   []segment              // one row each, in the order of HostKV
}

// Codecs parses a codec for each kind of state: ssm=int8,cache=e4m3/64. A codec without a kind is
// that of all kinds but conv, whose states are small. An unknown codec, or a kind that the model
// does not have, is an error. For empty text or only "none" the result is nil: nothing is
// compressed.
func (s *Store) Codecs(text string) (*Codecs, error) {
	parsed, err := parseCodecs(text)
	if err != nil || len(parsed) == 0 {
		return nil, err
	}
	c := &Codecs{kinds: map[graph.StateKind]graph.Codec{}, names: map[string]graph.Codec{}}
	var kinds []string
	for k := range s.t.states {
		st := &s.t.states[k]
		kind := s.t.kindOf(st)
		if !slices.Contains(kinds, string(kind)) {
			kinds = append(kinds, string(kind))
		}
		if x, ok := parsed[kind]; ok {
			c.kinds[kind], c.names[st.Name] = x, x
		}
	}
	for _, kind := range graph.StateKinds {
		if _, ok := parsed[kind]; ok && c.kinds[kind] == (graph.Codec{}) && strings.Contains(text, string(kind)+"=") {
			return nil, fmt.Errorf("state codec %q: the model has no state of kind %s; it has %s", text, kind, strings.Join(kinds, ", "))
		}
	}
	k, err := lowering.StateLayoutOf(s.t.schedules)
	if err != nil {
		return nil, err
	}
	for _, sh := range s.t.ranksWithState() {
		c.states = append(c.states, c.layout(k, sh.rank, 0))
	}
	for _, sh := range s.t.caches() {
		name, _ := s.t.schedules[sh.rank].Buffers[sh.buffer].State()
		c.rows = append(c.rows, c.segment(name, sh.dtype, sh.row))
	}
	return c, nil
}

// maxCodecs bounds the length of a text of codecs, which may come from files and other machines.
const maxCodecs = 256

// parseCodecs parses codecs by kind.
func parseCodecs(text string) (map[graph.StateKind]graph.Codec, error) {
	list := map[graph.StateKind]graph.Codec{}
	if text == "" {
		return list, nil
	}
	if len(text) > maxCodecs { // which errors would repeat
		return nil, fmt.Errorf("state codec %.40q has %d bytes; the limit is %d; a codec is such as ssm=int8,cache=e4m3/64", text, len(text), maxCodecs)
	}
	seen, rest := map[graph.StateKind]bool{}, false
	for part := range strings.SplitSeq(text, ",") {
		name, format, one := strings.Cut(part, "=")
		kinds := []graph.StateKind{graph.StateKind(name)}
		if !one {
			format, kinds = name, []graph.StateKind{graph.SSMState, graph.CacheState}
		}
		c, ok, err := graph.NewCodec(format)
		switch {
		case err != nil:
			return nil, fmt.Errorf("state codec %q: %w", text, err)
		case !ok && format != "none":
			return nil, fmt.Errorf("state codec %q: unknown codec %q; the codecs are %v, with a block size such as int8/64, and none", text, format, graph.CodecKinds())
		case !slices.Contains(graph.StateKinds, kinds[0]):
			return nil, fmt.Errorf("state codec %q: unknown kind %q of states; the kinds are %v", text, name, graph.StateKinds)
		case rest && !one:
			return nil, fmt.Errorf("state codec %q: two codecs without a kind; give one", text)
		}
		rest = rest || !one
		for _, k := range kinds {
			if seen[k] && one {
				return nil, fmt.Errorf("state codec %q: kind %s is given twice", text, k)
			}
			if seen[k] && !one {
				continue // the codec of a kind overrides that of all, also before it
			}
			if seen[k] = one; ok {
				list[k] = c
			} else {
				delete(list, k)
			}
		}
	}
	return list, nil
}

// kindOf returns the kind of a state, which the operation that updates it declares.
func (t *Table) kindOf(st *modelState) graph.StateKind {
	for i := range st.shards {
		sh := &st.shards[i]
		for _, step := range t.schedules[sh.rank].Steps {
			if step.Op == nil {
				continue
			}
			for _, pair := range step.Op.States {
				if step.Args[pair.Operand].Buffer == sh.buffer {
					return pair.Kind
				}
			}
		}
	}
	return ""
}

// String is the canonical text that [Store.Codecs] parses: ssm=int8/32,cache=int8/32. That of nil
// is empty.
func (c *Codecs) String() string {
	if c == nil {
		return ""
	}
	var parts []string
	for _, kind := range graph.StateKinds {
		if x, ok := c.kinds[kind]; ok {
			parts = append(parts, fmt.Sprintf("%s=%s", kind, x))
		}
	}
	return strings.Join(parts, ",")
}

// StateBytes is the compressed size of a [HostState].
func (c *Codecs) StateBytes() (n int64) {
	for _, l := range c.states {
		n += l.packed
	}
	return n
}

// KVBytes is the compressed size of a token of a [HostKV].
func (c *Codecs) KVBytes() (n int64) {
	for i := range c.rows {
		n += c.rows[i].packedRow()
	}
	return n
}

// EncodeState compresses recurrent states.
func (c *Codecs) EncodeState(h *HostState) (*HostState, error) {
	data, err := encodeAll("states", c.states, h.Data)
	if err != nil {
		return nil, err
	}
	return &HostState{Tokens: h.Tokens, Data: data}, nil
}

// DecodeState is the inverse of EncodeState, for [Store.LoadState].
func (c *Codecs) DecodeState(h *HostState) (*HostState, error) {
	data, err := decodeAll("compressed states", c.states, h.Data)
	if err != nil {
		return nil, err
	}
	return &HostState{Tokens: h.Tokens, Data: data}, nil
}

// EncodeKV compresses a KV cache, each token separately.
func (c *Codecs) EncodeKV(h *HostKV) (*HostKV, error) {
	return c.convertKV(h, "the KV cache", encodeAll)
}

// DecodeKV is the inverse of EncodeKV, for [Store.LoadKV].
func (c *Codecs) DecodeKV(h *HostKV) (*HostKV, error) {
	return c.convertKV(h, "the compressed KV cache", decodeAll)
}

func (c *Codecs) convertKV(h *HostKV, name string, convert func(string, []layout, [][]byte) ([][]byte, error)) (*HostKV, error) {
	n := int64(h.To - h.From)
	if n < 0 {
		return nil, fmt.Errorf("a KV cache of tokens %d to %d", h.From, h.To)
	}
	parts := make([]layout, len(c.rows))
	for i := range c.rows {
		s := &c.rows[i]
		parts[i] = layout{c.rows[i : i+1], n, n * s.rawRow(), n * s.packedRow()}
	}
	data, err := convert(name, parts, h.Data)
	if err != nil {
		return nil, err
	}
	return &HostKV{From: h.From, To: h.To, Data: data}, nil
}

func encodeAll(name string, parts []layout, data [][]byte) (out [][]byte, err error) {
	if err := checkParts(name, data, parts, func(l layout) int { return int(l.raw) }); err != nil {
		return nil, err
	}
	for i := range parts {
		packed, err := parts[i].encode(data[i], 0, int(parts[i].rows))
		if err != nil {
			return nil, err
		}
		out = append(out, packed)
	}
	return out, nil
}

func decodeAll(name string, parts []layout, data [][]byte) (out [][]byte, err error) {
	if err := checkParts(name, data, parts, func(l layout) int { return int(l.packed) }); err != nil {
		return nil, err
	}
	for i := range parts {
		l := &parts[i]
		raw := make([]byte, l.raw)
		for j := range l.segments {
			l.segments[j].decode(raw, data[i], int(l.rows))
		}
		out = append(out, raw)
	}
	return out, nil
}

// layout is the content of a piece of a rank's memory, raw and compressed.
type layout struct {
	segments    []segment
	rows        int64 // of each segment
	raw, packed int64 // bytes
}

// encode compresses the rows from first to end; others are zero in the result.
func (l *layout) encode(raw []byte, first, end int) ([]byte, error) {
	packed := make([]byte, l.packed)
	for i := range l.segments {
		if err := l.segments[i].encode(packed, raw, first, end); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// segment is a recurrent state, or rows of a KV cache, in a rank's memory.
type segment struct {
	name       string
	dtype      graph.DType
	codec      graph.Codec // without a block: the segment stays as it is
	elems      int         // of a row
	at, packed int64       // where it begins, raw and compressed
}

func (c *Codecs) segment(name string, d graph.DType, elems int) segment {
	return segment{name: name, dtype: d, codec: c.names[name], elems: elems}
}

// layout lists a rank's recurrent states, or its KV caches in a page of pageTokens tokens where
// these are not 0.
func (c *Codecs) layout(k *lowering.StateLayout, rank, pageTokens int) layout {
	rows := max(1, pageTokens)
	at, size := k.States(rank)
	if pageTokens > 0 {
		at, size = k.Page(rank, pageTokens)
	}
	out := layout{rows: int64(rows), raw: size}
	for i := range k.Buffers {
		b := &k.Buffers[i]
		if b.Cache() != (pageTokens > 0) {
			continue
		}
		name, t := b.State()
		s := c.segment(name, t.DType, int(k.Bytes(rank, i))/t.DType.Bytes())
		s.at, s.packed = at[i], out.packed
		out.segments = append(out.segments, s)
		out.packed += int64(rows) * s.packedRow()
	}
	return out
}

// asIs reports whether the segment has no codec.
func (s *segment) asIs() bool { return s.codec.Block == 0 }

func (s *segment) rawRow() int64 { return int64(s.elems * s.dtype.Bytes()) }

func (s *segment) packedRow() int64 {
	if s.asIs() {
		return s.rawRow()
	}
	return int64(s.codec.RowBytes(s.elems))
}

// encode compresses the rows from first to end.
func (s *segment) encode(packed, raw []byte, first, end int) error {
	values := make([]float32, s.elems)
	for i := int64(first); i < int64(end); i++ {
		from, to := raw[s.at+i*s.rawRow():][:s.rawRow()], packed[s.packed+i*s.packedRow():][:s.packedRow()]
		if s.asIs() {
			copy(to, from)
			continue
		}
		x := operand.Floats(s.dtype, from)
		x.Read(values, 0)
		if err := s.finite(values); err != nil {
			return err
		}
		codec.Encode(s.codec, to, values)
	}
	return nil
}

// decode is the inverse of encode, for the first rows.
func (s *segment) decode(raw, packed []byte, rows int) {
	values := make([]float32, s.elems)
	for i := range int64(rows) {
		to, from := raw[s.at+i*s.rawRow():][:s.rawRow()], packed[s.packed+i*s.packedRow():][:s.packedRow()]
		if s.asIs() {
			copy(to, from)
			continue
		}
		codec.Decode(s.codec, values, from)
		s.write(to, values)
	}
}

// write rounds values to the dtype of the state. Values that the scale brought beyond the range of
// f16 are clamped to it, so that finite values stay finite.
func (s *segment) write(to []byte, values []float32) {
	if s.dtype == graph.F16 {
		for i, v := range values {
			values[i] = max(-65504, min(v, 65504))
		}
	}
	x := operand.Floats(s.dtype, to)
	x.Write(0, values)
}

// NotFiniteError is the error of a state that cannot be compressed.
type NotFiniteError struct {
	State string
	Value float32
}

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("state %s has %g, which its codec cannot represent; leave the state codec out to keep the state as it is", e.State, e.Value)
}

func (s *segment) finite(values []float32) error {
	for _, v := range values {
		if v-v != 0 {
			return &NotFiniteError{s.name, v}
		}
	}
	return nil
}

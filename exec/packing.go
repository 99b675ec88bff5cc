package exec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
)

// Packing puts what an engine keeps of sequences into codecs, where it leaves the ranks: for
// the host's memory, files and other machines. What a rank has of a state is a row, and so is
// what it has of a token in a cache: n elements take ceil(n/block) blocks, and each is off by
// at most [codec.Bound] of its block afterwards. States of kinds that have no codec go as they
// are. A number that is not finite is an error that names its state: its block would have
// nothing else. It may be used from several goroutines.
type Packing struct {
	codecs map[graph.StateKind]graph.Codec
	of     map[string]graph.Codec // by the model's states
	cols   map[string]int         // elements of a row, of all states
	states []stretches            // in the order of HostStates
	rows   []stretch              // one row each, in the order of HostRows
}

// Packing reads which codecs states have, by kind: ssm=int8,cache=e4m3/64. A codec without a
// kind is that of all but conv, whose states are small. A kind that the model does not keep,
// and a codec that there is not, are errors. Empty text, or none, is nil: all as it is.
func (e *Engine) Packing(text string) (*Packing, error) {
	asked, err := parseCodecs(text)
	if err != nil || len(asked) == 0 {
		return nil, err
	}
	p := &Packing{codecs: map[graph.StateKind]graph.Codec{}, of: map[string]graph.Codec{}, cols: map[string]int{}}
	var there []string
	for k := range e.states {
		st := &e.states[k]
		p.cols[st.Name] = st.cols
		kind := e.kindOf(st)
		if !slices.Contains(there, string(kind)) {
			there = append(there, string(kind))
		}
		if c, ok := asked[kind]; ok {
			p.codecs[kind], p.of[st.Name] = c, c
		}
	}
	for _, kind := range graph.StateKinds {
		if _, ok := asked[kind]; ok && p.codecs[kind] == (graph.Codec{}) && strings.Contains(text, string(kind)+"=") {
			return nil, fmt.Errorf("state codec %q: the model keeps nothing of kind %s; it has %s", text, kind, strings.Join(there, ", "))
		}
	}
	k, err := lowering.KeepsOf(e.schedules)
	if err != nil {
		return nil, err
	}
	for _, h := range e.ofRanks() {
		p.states = append(p.states, p.run(k, h.rank))
	}
	for _, h := range e.caches() {
		p.rows = append(p.rows, newStretch(p, e.nameOf(h), h.dtype, h.row))
	}
	return p, nil
}

// mostCodecs is how long a text of codecs may be, which may come from files and other machines.
const mostCodecs = 256

// parseCodecs reads codecs by kind.
func parseCodecs(text string) (map[graph.StateKind]graph.Codec, error) {
	list := map[graph.StateKind]graph.Codec{}
	if text == "" {
		return list, nil
	}
	if len(text) > mostCodecs { // which errors would repeat
		return nil, fmt.Errorf("state codec %.40q has %d bytes; at most %d are possible, such as ssm=int8,cache=e4m3/64", text, len(text), mostCodecs)
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
			return nil, fmt.Errorf("state codec %q: there is no codec %q; there are %v, with a size of their blocks such as int8/64, and none", text, format, graph.CodecKinds())
		case !slices.Contains(graph.StateKinds, kinds[0]):
			return nil, fmt.Errorf("state codec %q: there is no kind %q of states; there are %v", text, name, graph.StateKinds)
		case rest && !one:
			return nil, fmt.Errorf("state codec %q: there are two codecs without a kind", text)
		}
		rest = rest || !one
		for _, k := range kinds {
			if seen[k] && one {
				return nil, fmt.Errorf("state codec %q: %s is there twice", text, k)
			}
			if seen[k] && !one {
				continue // what is said of a kind counts, also before what is said of all
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

// kindOf is of which kind a state is: what an operation that replaces it says.
func (e *Engine) kindOf(st *state) graph.StateKind {
	for i := range st.held {
		h := &st.held[i]
		for _, step := range e.schedules[h.rank].Steps {
			if step.Op == nil {
				continue
			}
			for _, pair := range step.Op.States {
				if step.Args[pair.Operand].Buffer == h.buffer {
					return pair.Kind
				}
			}
		}
	}
	return ""
}

// nameOf is the model's state that a rank holds a part of.
func (e *Engine) nameOf(h *held) string {
	name, _ := e.schedules[h.rank].Buffers[h.buffer].State()
	return name
}

// String is what [Engine.Packing] reads, with all that it says: ssm=int8/32,cache=int8/32.
// That of nil is empty.
func (p *Packing) String() string {
	if p == nil {
		return ""
	}
	var parts []string
	for _, kind := range graph.StateKinds {
		if c, ok := p.codecs[kind]; ok {
			parts = append(parts, fmt.Sprintf("%s=%s", kind, c))
		}
	}
	return strings.Join(parts, ",")
}

// StateBytes and RowBytes are what all ranks' states, and their rows of a token, take.
func (p *Packing) StateBytes() (n int64) {
	for _, r := range p.states {
		n += r.packed
	}
	return n
}

// RowBytes is what all ranks have of a token.
func (p *Packing) RowBytes() (n int64) {
	for i := range p.rows {
		n += p.rows[i].packedRow()
	}
	return n
}

// PackStates puts states into codecs, and UnpackStates brings them back.
func (p *Packing) PackStates(s *HostStates) (*HostStates, error) {
	data, err := packAll("states", p.states, s.Data)
	if err != nil {
		return nil, err
	}
	return &HostStates{Tokens: s.Tokens, Data: data}, nil
}

// UnpackStates is what [Engine.LoadStates] takes.
func (p *Packing) UnpackStates(s *HostStates) (*HostStates, error) {
	data, err := unpackAll("packed states", p.states, s.Data)
	if err != nil {
		return nil, err
	}
	return &HostStates{Tokens: s.Tokens, Data: data}, nil
}

// PackRows puts rows of caches into codecs, each token's for itself, and UnpackRows brings
// them back.
func (p *Packing) PackRows(h *HostRows) (*HostRows, error) {
	parts, err := p.tokens(h)
	if err != nil {
		return nil, err
	}
	data, err := packAll("rows", parts, h.Data)
	if err != nil {
		return nil, err
	}
	return &HostRows{From: h.From, To: h.To, Data: data}, nil
}

// UnpackRows is what [Engine.LoadRows] takes.
func (p *Packing) UnpackRows(h *HostRows) (*HostRows, error) {
	parts, err := p.tokens(h)
	if err != nil {
		return nil, err
	}
	data, err := unpackAll("packed rows", parts, h.Data)
	if err != nil {
		return nil, err
	}
	return &HostRows{From: h.From, To: h.To, Data: data}, nil
}

// tokens are what rows of tokens have, in the order of HostRows.
func (p *Packing) tokens(h *HostRows) ([]stretches, error) {
	n := int64(h.To - h.From)
	if n < 0 {
		return nil, fmt.Errorf("rows of tokens %d to %d", h.From, h.To)
	}
	list := make([]stretches, len(p.rows))
	for i := range p.rows {
		s := &p.rows[i]
		list[i] = stretches{p.rows[i : i+1], n, n * s.rawRow(), n * s.packedRow()}
	}
	return list, nil
}

func packAll(what string, parts []stretches, data [][]byte) (out [][]byte, err error) {
	if err := fitHost(what, data, sizesOf(parts, func(r *stretches) int64 { return r.raw })); err != nil {
		return nil, err
	}
	for i := range parts {
		packed, err := parts[i].pack(data[i], 0, int(parts[i].rows))
		if err != nil {
			return nil, err
		}
		out = append(out, packed)
	}
	return out, nil
}

func unpackAll(what string, parts []stretches, data [][]byte) (out [][]byte, err error) {
	if err := fitHost(what, data, sizesOf(parts, func(r *stretches) int64 { return r.packed })); err != nil {
		return nil, err
	}
	for i := range parts {
		r := &parts[i]
		raw := make([]byte, r.raw)
		for j := range r.list {
			r.list[j].unpack(raw, data[i], 0, int(r.rows))
		}
		out = append(out, raw)
	}
	return out, nil
}

func sizesOf(parts []stretches, size func(*stretches) int64) []int {
	sizes := make([]int, len(parts))
	for i := range parts {
		sizes[i] = int(size(&parts[i]))
	}
	return sizes
}

// stretches are what a region of a rank's memory has.
type stretches struct {
	list        []stretch
	rows        int64 // of each
	raw, packed int64 // bytes
}

// pack packs the rows from one on, up to another; of others is nothing.
func (r *stretches) pack(raw []byte, first, end int) ([]byte, error) {
	packed := make([]byte, r.packed)
	for i := range r.list {
		if err := r.list[i].pack(packed, raw, first, end); err != nil {
			return nil, err
		}
	}
	return packed, nil
}

// stretch is a state, or rows of a cache, in memory of a rank: where it begins, and where
// packed.
type stretch struct {
	name       string
	dtype      graph.DType
	codec      graph.Codec // of no elements: as it is
	elems      int         // of a row
	at, packed int64
}

func newStretch(p *Packing, name string, d graph.DType, elems int) stretch {
	return stretch{name: name, dtype: d, codec: p.of[name], elems: elems}
}

// run lists the states of a rank.
func (p *Packing) run(k *lowering.Keeps, rank int) (out stretches) {
	at, size := k.States(rank)
	return p.region(k, rank, 1, at, size, false)
}

// page lists the caches of a rank, in a page of so many tokens.
func (p *Packing) page(k *lowering.Keeps, rank, tokens int) stretches {
	at, size := k.Page(rank, tokens)
	return p.region(k, rank, tokens, at, size, true)
}

func (p *Packing) region(k *lowering.Keeps, rank, rows int, at []int64, size int64, caches bool) stretches {
	out := stretches{rows: int64(rows), raw: size}
	for i := range k.Buffers {
		b := &k.Buffers[i]
		if b.Cache() != caches {
			continue
		}
		name, t := b.State()
		s := newStretch(p, name, t.DType, int(k.Bytes(rank, i))/t.DType.Bytes())
		s.at, s.packed = at[i], out.packed
		out.list = append(out.list, s)
		out.packed += int64(rows) * s.packedRow()
	}
	return out
}

// asIs reports whether nothing is done to it.
func (s *stretch) asIs() bool { return s.codec.Block == 0 }

func (s *stretch) rawRow() int64 { return int64(s.elems * s.dtype.Bytes()) }

func (s *stretch) packedRow() int64 {
	if s.asIs() {
		return s.rawRow()
	}
	return int64(s.codec.RowBytes(s.elems))
}

// pack puts rows of a region into their place among what is packed.
func (s *stretch) pack(packed, raw []byte, first, end int) error {
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

// unpack is its inverse.
func (s *stretch) unpack(raw, packed []byte, first, end int) {
	values := make([]float32, s.elems)
	for i := int64(first); i < int64(end); i++ {
		to, from := raw[s.at+i*s.rawRow():][:s.rawRow()], packed[s.packed+i*s.packedRow():][:s.packedRow()]
		if s.asIs() {
			copy(to, from)
			continue
		}
		codec.Decode(s.codec, values, from)
		s.write(to, values)
	}
}

// write rounds numbers to the format of the state. Those that the scale has brought beyond the
// end of f16 are that end: what was finite stays so.
func (s *stretch) write(to []byte, values []float32) {
	if s.dtype == graph.F16 {
		for i, v := range values {
			values[i] = max(-65504, min(v, 65504))
		}
	}
	x := operand.Floats(s.dtype, to)
	x.Write(0, values)
}

// NotFinite is the error of a state that no codec takes.
type NotFinite struct {
	State string
	Value float32
}

func (e *NotFinite) Error() string {
	return fmt.Sprintf("state %s has %g, and is put into no codec, which would make a block of that; leave the state codec out to keep it as it is", e.State, e.Value)
}

func (s *stretch) finite(values []float32) error {
	for _, v := range values {
		if v-v != 0 {
			return &NotFinite{s.name, v}
		}
	}
	return nil
}

// PackedSnapshot is a [Snapshot] in codecs. Of states that have none the numbers are f32,
// little endian.
type PackedSnapshot struct {
	Tokens int
	Codecs string            // as [Packing.String] has them
	States map[string][]byte // rows, one after another
}

// PackSnapshot puts a snapshot into codecs: a row of a state, whatever ranks hold of it.
func (p *Packing) PackSnapshot(s *Snapshot) (*PackedSnapshot, error) {
	out := &PackedSnapshot{s.Tokens, p.String(), map[string][]byte{}}
	for name, values := range s.States {
		x, ok := p.snapshotted(name)
		if !ok || len(values)%max(1, x.elems) != 0 {
			return nil, fmt.Errorf("the snapshot is of another model: its state %s has %d elements", name, len(values))
		}
		rows := len(values) / max(1, x.elems)
		raw, packed := make([]byte, 4*len(values)), make([]byte, int64(rows)*x.packedRow())
		for i, v := range values {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		if err := x.pack(packed, raw, 0, rows); err != nil {
			return nil, err
		}
		out.States[name] = packed
	}
	return out, nil
}

// UnpackSnapshot is its inverse, of what was packed by a packing of the same codecs.
func (p *Packing) UnpackSnapshot(s *PackedSnapshot) (*Snapshot, error) {
	if s.Codecs != p.String() {
		return nil, fmt.Errorf("the snapshot is in the codecs %q, and these are %q", s.Codecs, p)
	}
	out := &Snapshot{s.Tokens, map[string][]float32{}}
	for name, packed := range s.States {
		x, ok := p.snapshotted(name)
		if !ok || int64(len(packed))%max(1, x.packedRow()) != 0 {
			return nil, fmt.Errorf("the snapshot is of another model: its state %s has %d bytes", name, len(packed))
		}
		rows := int(int64(len(packed)) / max(1, x.packedRow()))
		raw := make([]byte, int64(rows)*x.rawRow())
		x.unpack(raw, packed, 0, rows)
		values := make([]float32, rows*x.elems)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		out.States[name] = values
	}
	return out, nil
}

// snapshotted is a state as snapshots have it.
func (p *Packing) snapshotted(name string) (stretch, bool) {
	cols, ok := p.cols[name]
	return newStretch(p, name, graph.F32, cols), ok
}

package tests

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels/codec"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// stateCodecs are what the tests take in turns.
var stateCodecs = []string{"int8", "e4m3/64", "e5m2/16", "int4/128", "scaled16", "conv=int8/16,ssm=int4,cache=e4m3/2048"}

// packingOf reads codecs.
func packingOf(t *testing.T, m *krait.Model, text string) *state.Codecs {
	t.Helper()
	p, err := m.Engine().Codecs(text)
	if err != nil || p == nil {
		t.Fatal(text, p, err)
	}
	return p
}

// codecOf is what a text of stateCodecs says of a state.
func codecOf(text string, kind graph.StateKind) (graph.Codec, bool) {
	for part := range strings.SplitSeq(text, ",") {
		name, format, one := strings.Cut(part, "=")
		if !one {
			name, format = string(kind), part
			if kind == graph.ConvState {
				continue
			}
		}
		if name == string(kind) {
			c, ok, _ := graph.NewCodec(format)
			return c, ok
		}
	}
	return graph.Codec{}, false
}

// kindsOf are the kinds of the model's states, from its graph.
func kindsOf(m *krait.Model) map[string]graph.StateKind {
	kinds := map[string]graph.StateKind{}
	for _, n := range m.Graph().Nodes {
		for _, p := range n.Op.States {
			kinds[n.Args[p.Operand].Name] = p.Kind
		}
	}
	return kinds
}

// packedBytes is what buffers take in codecs, by the formula: of states, and of a token's rows.
func packedBytes(m *krait.Model, text string, kinds map[string]graph.StateKind) (states, row int64) {
	for _, s := range m.Engine().Schedules() {
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != lowering.State && b.Space != lowering.Cache {
				continue
			}
			name, _ := b.State()
			bytes := b.Bytes
			if c, ok := codecOf(text, kinds[name]); ok {
				n := int(b.Bytes) / b.Type.DType.Bytes()
				bytes = int64((n + c.Block - 1) / c.Block * (c.Block*c.Bits()/8 + 2))
			}
			if b.Space == lowering.State {
				states += bytes
			} else {
				row += bytes
			}
		}
	}
	return states, row
}

// TestStateCodecs: what a sequence keeps takes in each codec the bytes of the formula, and comes
// back within the bound of each block, from the host, a file, a snapshot on other ranks and
// another process alike; kinds without a codec to the last bit.
func TestStateCodecs(t *testing.T) {
	goldens.CI(t)
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	cases := covering.Each(t, []int{len(folders), len(stateCodecs)}, 3)
	for g, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			kinds := kindsOf(openModel(t, dir, krait.Options{}))
			for _, c := range cases {
				if c[0] != g {
					continue
				}
				i, text, ranks := c[1], stateCodecs[c[1]], 1+c[2]
				o := krait.Options{Slots: 6, Workers: 1, Sharding: krait.Sharding{Ranks: ranks}, PageTokens: 5, StateCodec: text}
				if !slices.Contains(slicesOf(kinds), graph.SSMState) {
					o.StateCodec = strings.Replace(o.StateCodec, ",ssm=int4", "", 1)
				}
				if !slices.Contains(slicesOf(kinds), graph.CacheState) {
					o.StateCodec = strings.TrimSuffix(o.StateCodec, ",cache=e4m3/2048")
				} else if i%2 == 1 {
					o.Sharding.States = "cache=bf16"
				}
				m := openModel(t, dir, o)
				one := sequence(t, m)
				ids := randomIDs(13, m.Vocab())
				stepped(t, one, ids...)
				p := m.Session().Codecs()
				states, row := packedBytes(m, o.StateCodec, kinds)
				if p.StateBytes() != states || p.KVBytes() != row {
					t.Fatalf("%s: %d and %d bytes, want %d and %d", text, p.StateBytes(), p.KVBytes(), states, row)
				}
				back := packedAndBack(t, m, one, states+13*row)
				within(t, text, snapshot(t, one), snapshot(t, back), o.StateCodec, kinds, m)
				bare := o
				bare.StateCodec = ""
				throughFile(t, m, openModel(t, dir, bare), one, snapshot(t, back))
				throughTransfer(t, dir, m, ids, o, states+13*row)
			}
		})
	}
}

func slicesOf(kinds map[string]graph.StateKind) (list []graph.StateKind) {
	for _, k := range kinds {
		list = append(list, k)
	}
	return list
}

// packedAndBack is a sequence that resumes from an encoded and decoded state.
func packedAndBack(t *testing.T, m *krait.Model, one *seq, bytes int64) *seq {
	t.Helper()
	x, err := m.Engine().Export(one.slot)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Session().Codecs().EncodeState(x.State)
	r, err2 := m.Session().Codecs().EncodeKV(x.KV[0])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, d := range slices.Concat(s.Data, r.Data) {
		total += int64(len(d))
	}
	if total != bytes {
		t.Errorf("%d bytes are packed, not %d", total, bytes)
	}
	if x.State, err = m.Session().Codecs().DecodeState(s); err != nil {
		t.Fatal(err)
	}
	if x.KV[0], err = m.Session().Codecs().DecodeKV(r); err != nil {
		t.Fatal(err)
	}
	back := sequence(t, m)
	if err := m.Engine().Import(back.slot, x); err != nil {
		t.Fatal(err)
	}
	return back
}

// within holds what came back to the bound: of the largest magnitude of its row, which no block
// exceeds. TestPackedBlocks has blocks.
func within(t *testing.T, what string, want, got *krait.Snapshot, text string, kinds map[string]graph.StateKind, m *krait.Model) {
	t.Helper()
	for _, st := range m.States() {
		c, packed := codecOf(text, kinds[st.Name])
		cols := graph.RowElems(st.Type.Dims)
		for at := 0; at < len(want.States[st.Name]); at += cols {
			row, most := want.States[st.Name][at:at+cols], 0.0
			for _, v := range row {
				most = max(most, math.Abs(float64(v)))
			}
			bound := 0.0
			if packed {
				bound = codec.Bound(c, most)
				switch st.Type.DType { // in which it is kept, on the way back
				case graph.BF16:
					bound += most / 200
				case graph.F16:
					bound += most / 2000
				}
			}
			for j, v := range row {
				if d := math.Abs(float64(v) - float64(got.States[st.Name][at+j])); !(d <= bound) {
					t.Fatalf("%s: %s: %g comes back as %g, off by more than %g", what, st.Name, v, got.States[st.Name][at+j], bound)
				}
			}
		}
	}
}

// throughFile saves a sequence; what is loaded is what came back from the host, also where
// the model has no codec.
func throughFile(t *testing.T, m, plain *krait.Model, one *seq, want *krait.Snapshot) {
	t.Helper()
	data := saves(t, one)
	if !bytes.Contains(data[:min(len(data), 4000)], []byte(`"codecs":"`+m.Session().Codecs().String()+`"`)) {
		t.Errorf("the header does not name %s", m.Session().Codecs())
	}
	two := sequence(t, plain)
	defer two.Close()
	if err := two.Load(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	sameSnapshot(t, m.Name, snapshot(t, two), want)
}

// throughTransfer prefills a prompt on the ranks of m, and resumes on others: what arrives is
// what comes back on m, to the last bit, and as many bytes came as the formula says where both have
// as many ranks.
func throughTransfer(t *testing.T, dir string, m *krait.Model, ids []int, o krait.Options, bytes int64) {
	t.Helper()
	there := sequence(t, m)
	defer there.Close()
	stepped(t, there, ids...)
	back := packedAndBack(t, m, there, bytes)
	defer back.Close()
	server, address := serveModel(t, m, transfer.ServerOptions{})
	for _, ranks := range []int{o.Sharding.Ranks, 4 - o.Sharding.Ranks} {
		o.Sharding.Ranks, o.PageTokens = ranks, 4
		to := openModel(t, dir, o)
		f := prefill.Options{Address: address, Strict: true}
		if ranks%2 == 0 {
			f = prefill.Options{Server: server, Strict: true}
		}
		p := prefillBy(t, to, f)
		a, r, err := p.Prefill(t.Context(), to.Session(), "", append(slices.Clone(ids), 1), nil)
		if err != nil || r.Fallback != nil {
			t.Fatal(err, r.Fallback)
		}
		if ranks == len(m.Engine().Schedules()) && r.Bytes != bytes || r.Bytes < bytes/2 {
			t.Errorf("%d bytes came to %d ranks, and %d are packed", r.Bytes, ranks, bytes)
		}
		q := sequence(t, to)
		if _, err := a.Begin(q.slot); err != nil {
			t.Fatal(err)
		}
		sameSnapshot(t, fmt.Sprintf("%s to %d ranks", o.StateCodec, ranks), snapshot(t, q), snapshot(t, back))
		q.Close()
		nothingHeld(t, "after a transfer", to)
	}
	server.Close()
}

// TestPackedBlocks: each block comes back within its own bound.
func TestPackedBlocks(t *testing.T) {
	for i, text := range stateCodecs[:5] {
		m := openModel(t, "../testdata/golden/jamba", krait.Options{Sharding: krait.Sharding{Ranks: 1 + i%3}})
		p, kinds := packingOf(t, m, text), kindsOf(m)
		one := sequence(t, m)
		stepped(t, one, randomIDs(9, m.Vocab())...)
		x, err := m.Engine().Export(one.slot)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := p.EncodeState(x.State)
		if err != nil {
			t.Fatal(err)
		}
		back, err := p.DecodeState(packed)
		if err != nil {
			t.Fatal(err)
		}
		for rank, s := range m.Engine().Schedules() {
			for j := range s.Buffers {
				b := &s.Buffers[j]
				name, _ := b.State()
				if b.Space != lowering.State {
					continue
				}
				want := graph.Array{DType: b.Type.DType, Shape: []int{int(b.Bytes / 4)}, Data: x.State.Data[rank][b.Offset:][:b.Bytes]}.Float32s()
				got := graph.Array{DType: b.Type.DType, Shape: []int{int(b.Bytes / 4)}, Data: back.Data[rank][b.Offset:][:b.Bytes]}.Float32s()
				bounds := make([]float64, len(want))
				if c, ok := codecOf(text, kinds[name]); ok {
					codec.AddBounds(c, bounds, want)
				}
				for k := range want {
					if d := math.Abs(float64(want[k]) - float64(got[k])); !(d <= bounds[k]) {
						t.Fatalf("%s, rank %d, %s[%d]: %g comes back as %g, off by more than %g", text, rank, name, k, want[k], got[k], bounds[k])
					}
				}
			}
		}
	}
}

// TestStateCodecNotFinite: what is not finite is refused by its name where it would go into a
// codec, goes as it is where it would not, and costs a host's cache nothing else.
func TestStateCodecNotFinite(t *testing.T) {
	dir := "../testdata/golden/jamba"
	m := openModel(t, dir, krait.Options{StateCodec: "int8", Sharding: krait.Sharding{Ranks: 2}})
	for _, st := range m.States() {
		kind := kindsOf(openModel(t, dir, krait.Options{}))[st.Name]
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			one := sequence(t, m)
			stepped(t, one, 1, 2, 3)
			values, err := m.Engine().State(one.slot, st.Name)
			if err != nil {
				t.Fatal(err)
			}
			values[len(values)-1] = v
			if err := m.Engine().SetState(one.slot, st.Name, values); err != nil {
				t.Fatal(err)
			}
			err = one.Save(&bytes.Buffer{})
			if kind == graph.ConvState && err != nil || kind != graph.ConvState && (err == nil || !strings.Contains(err.Error(), st.Name+" has "+fmt.Sprint(v))) {
				t.Errorf("%s with %g: %v", st.Name, v, err)
			}
			one.Close()
		}
	}
}

// TestStateCodecF16: a scale that is rounded up brings nothing beyond the end of f16, in which
// a cache is kept.
func TestStateCodecF16(t *testing.T) {
	for _, text := range []string{"int8", "int4", "e4m3", "e5m2", "scaled16"} {
		m := openModel(t, "../testdata/golden/jamba", krait.Options{StateCodec: "cache=" + text, Sharding: krait.Sharding{States: "cache=f16"}})
		one := sequence(t, m)
		stepped(t, one, 1, 2, 3)
		for _, st := range m.States() {
			if !st.Type.Ragged() {
				continue
			}
			values, err := m.Engine().State(one.slot, st.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range values {
				values[i] = []float32{65504, -65504, 65000, 61000}[i%4]
			}
			if err := m.Engine().SetState(one.slot, st.Name, values); err != nil {
				t.Fatal(err)
			}
		}
		two := sequence(t, m)
		if err := two.Load(bytes.NewReader(saves(t, one))); err != nil {
			t.Fatal(err)
		}
		for name, values := range snapshot(t, two).States {
			for i, v := range values {
				if v-v != 0 {
					t.Fatalf("%s: %s[%d] is %g", text, name, i, v)
				}
			}
		}
	}
}

// TestStateCodecRefuses: what there is not is named.
func TestStateCodecRefuses(t *testing.T) {
	jamba := "../testdata/golden/jamba"
	for text, want := range map[string]string{
		"int3":                   `state codec "int3": unknown codec "int3"; the codecs are [int8 int4 e4m3 e5m2 scaled16]`,
		"bf16":                   `unknown codec "bf16"`,
		"int8/33":                "it must be a power of two from",
		"rnn=int8":               `unknown kind "rnn" of states; the kinds are [conv ssm cache]`,
		"ssm=int8,ssm=int4":      "kind ssm is given twice",
		"int8,e4m3":              "two codecs without a kind",
		"ssm=int8,int4,ssm=int8": "kind ssm is given twice",
		"ssm":                    `unknown codec "ssm"`,
	} {
		if _, err := krait.Open(jamba, krait.Options{StateCodec: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := krait.Open("../testdata/golden/mamba-a", krait.Options{StateCodec: "cache=int8"}); err == nil || !strings.Contains(err.Error(), "the model has no state of kind cache; it has conv, ssm") {
		t.Error(err)
	}
	m := openModel(t, jamba, krait.Options{})
	for text, want := range map[string]string{"": "", "none": "", "int8": "ssm=int8/32,cache=int8/32", "int8/64,ssm=none": "cache=int8/64", "ssm=none,int8/64": "cache=int8/64", "ssm=int8,int4": "ssm=int8/32,cache=int4/32", "e4m3,conv=int4/16": "conv=int4/16,ssm=e4m3/32,cache=e4m3/32"} {
		p, err := m.Engine().Codecs(text)
		if err != nil || p.String() != want {
			t.Errorf("%q: %q, %v", text, p, err)
		}
	}
	if _, err := m.Engine().Codecs(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 200 || !strings.Contains(err.Error(), "has 1048576 bytes; the limit is 256") {
		t.Errorf("of a text that is too long: %.300v", err)
	}
	backwards := &state.HostKV{From: 2, To: 1}
	for _, f := range []func(*state.HostKV) (*state.HostKV, error){packingOf(t, m, "int8").EncodeKV, packingOf(t, m, "int8").DecodeKV} {
		if _, err := f(backwards); err == nil || err.Error() != "a KV cache of tokens 2 to 1" {
			t.Error(err)
		}
	}
	o, err := m.Session().Origin()
	if err != nil {
		t.Fatal(err)
	}
	one := sequence(t, m)
	stepped(t, one, 1, 2)
	x, err := m.Engine().Export(one.slot)
	if err != nil {
		t.Fatal(err)
	}
	for codecs, want := range map[string]string{"ssm=int3": `unknown codec "int3"`, "ssm=int8/32": "compressed states has 0", "": ""} {
		var b bytes.Buffer
		if err := statefile.Write(&b, o, &state.Export{Tokens: 2, Codecs: codecs, State: x.State, KV: x.KV}); err != nil {
			t.Fatal(err)
		}
		err := sequence(t, m).Load(&b)
		if codecs == "ssm=int8/32" {
			want = "of compressed states has"
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", codecs, err)
		}
	}
}

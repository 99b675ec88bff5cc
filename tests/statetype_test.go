package tests

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// kindOf is the kind of a state as models name them: layers.0.mixer.conv, .ssm, and
// layers.1.attention.keys and .values.
func kindOf(state string) string {
	last := state[strings.LastIndexByte(state, '.')+1:]
	if last == "keys" || last == "values" {
		return "cache"
	}
	return last
}

// inFormats gives every kind that a model keeps a short format: bf16, or f16 or e4m3 for what may
// have it.
func inFormats(m *krait.Model, short string) (option string, formats map[string]graph.DType) {
	formats = map[string]graph.DType{}
	for _, s := range m.States() {
		kind, name := kindOf(s.Name), short
		if kind == "ssm" {
			name = "bf16"
		}
		formats[kind], _ = graph.ParseDType(name)
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(formats)) {
		parts = append(parts, kind+"="+formats[kind].String())
	}
	return strings.Join(parts, ","), formats
}

// roundedTo is a snapshot as an engine keeps it that has these formats.
func roundedTo(s *krait.Snapshot, formats map[string]graph.DType) *krait.Snapshot {
	out := &krait.Snapshot{Tokens: s.Tokens, States: map[string][]float32{}}
	for name, v := range s.States {
		out.States[name] = slices.Clone(v)
		kernels.Round(formats[kindOf(name)], out.States[name])
	}
	return out
}

// TestStatesInFormats: engines that keep states in 16 or 8 bits say so, take those of one in f32
// rounded, once, and give them to others with the same formats, and back, bit for bit, whatever
// their ranks and devices. From there all go on as f32 does from rounded states, but for the new
// keys and values. What each makes of prompts in pieces is what the float64 kernels make of them
// with states in these formats, within 100 times the tolerance of f32: numbers close to the middle
// of two are rounded apart now and then, which was 36 times at most when this was written.
func TestStatesInFormats(t *testing.T) {
	folders := covering.Drawn(t, goldens.Folders(t, ".."))
	cases := covering.Each(t, []int{len(folders), 5}, 3)
	if goldens.All() {
		cases = covering.Each(t, []int{len(folders), 1}, 3) // all engines one after the other
	}
	for _, c := range cases {
		k, dir := c[0], folders[c[0]]
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			from := openModel(t, dir, krait.Options{Slots: 3})
			option, formats := inFormats(from, []string{"f16", "bf16", "e4m3"}[c[2]])
			all := []krait.Options{
				{Reference: true},
				{},
				{Sharding: krait.Sharding{Ranks: 3, Strategy: "naive"}},
				{Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: 2})}, Sharding: krait.Sharding{Ranks: 1 + k%3}},
			}
			others := all
			if !goldens.All() { // the reference, and one more, for a fifth a device
				others = all[:1:1]
				for _, i := range [][]int{{1}, {2}, {1}, {2}, {3}}[c[1]] {
					others = append(others, all[i])
				}
			}
			ids := randomIDs(70, from.Vocab())
			s := sequence(t, from)
			stepped(t, s, ids...)
			want := roundedTo(snapshot(t, s), formats)
			at, logits := snapshot(t, s), []float32(nil)
			next := nextOf(t, from, want, 7)
			for i, o := range others {
				what := fmt.Sprintf("%s, engine %d", option, i)
				o.Slots, o.Sharding.States = 3, option
				m := openModel(t, dir, o)
				for _, x := range m.States() {
					if d := formats[kindOf(x.Name)]; x.Type.DType != d {
						t.Errorf("%s: %s is %s, want %s", what, x.Name, x.Type, d)
					}
				}
				q, p := sequence(t, m), sequence(t, m)
				if err := q.Restore(at); err != nil {
					t.Fatal(what, err)
				}
				at = snapshot(t, q)
				sameSnapshot(t, what, at, want)
				moveEach(t, p, q)
				sameSnapshot(t, what+", one by one", snapshot(t, p), want)
				agrees(t, what+", going on", stepped(t, q, 7), next, 500*goldens.Tolerance(dir))
				got := fed(t, m, ids)
				if logits == nil {
					logits = got
				}
				agrees(t, what, got, logits, 100*goldens.Tolerance(dir))
			}
			if err := s.Restore(at); err != nil {
				t.Fatal(err)
			}
			sameSnapshot(t, "back in f32", snapshot(t, s), want)
		})
	}
}

// nextOf is what a model makes of a token after a snapshot.
func nextOf(t *testing.T, m *krait.Model, s *krait.Snapshot, token int) []float32 {
	t.Helper()
	q := sequence(t, m)
	if err := q.Restore(s); err != nil {
		t.Fatal(err)
	}
	return stepped(t, q, token)
}

// fed feeds tokens in pieces, and returns the logits after each.
func fed(t *testing.T, m *krait.Model, ids []int) (logits []float32) {
	t.Helper()
	s := sequence(t, m)
	for _, n := range []int{1, 2, 17, 1} {
		logits = append(logits, stepped(t, s, ids[:n]...)...)
		ids = ids[n:]
	}
	return logits
}

func agrees(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if d := math.Abs(float64(got[i] - w)); !(d <= tolerance) {
			t.Errorf("%s: logit %d is %g, want %g (off by %g)", what, i, got[i], w, d)
			return
		}
	}
}

// TestStatesOutOfRange: what f16 and e4m3 do not reach is not made something else, but refused, and
// the sequence stays as it was; what bf16 reaches is taken.
func TestStatesOutOfRange(t *testing.T) {
	for format, fits := range map[string]bool{"f16": false, "e4m3": false, "bf16": true, "f32": true} {
		m := openModel(t, "../testdata/golden/mamba-a", krait.Options{Sharding: krait.Sharding{Ranks: 2, States: "conv=" + format}})
		s := sequence(t, m)
		stepped(t, s, 1, 2, 3)
		before := snapshot(t, s)
		conv := "layers.0.mixer.conv"
		large := &krait.Snapshot{Tokens: before.Tokens, States: maps.Clone(before.States)}
		large.States[conv] = slices.Clone(before.States[conv])
		held, want := []float32{65519, -65519, float32(math.Inf(1))}, "f16, which ends at 65504" // f16 has numbers for these
		if format == "e4m3" {
			held, want = []float32{464, -464}, "e4m3, which ends at 448"
		}
		copy(large.States[conv], held)
		if err := s.Restore(large); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		if err := s.Restore(before); err != nil {
			t.Fatal(err)
		}
		large.States[conv][5] = -65520
		for i, err := range []error{s.SetState(conv, large.States[conv]), s.Restore(large)} {
			if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "state layers.0.mixer.conv is stored in "+want+"; element 5 is -65520") {
				t.Errorf("%s, call %d: %v", format, i, err)
			}
		}
		if !fits {
			sameSnapshot(t, format, snapshot(t, s), before)
		}
	}
}

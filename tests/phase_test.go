package tests

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lab/agreement"
	"github.com/krait-ml/krait/lab/calibration"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
)

// payloadsOf are the formats in which something travels.
func payloadsOf(m *krait.Model) (list []string) {
	for _, n := range m.Compiled().Nodes {
		if d := n.Results[0].Type.DType; n.Op.Name == "quantize" && !slices.Contains(list, d.String()) {
			list = append(list, d.String())
		}
	}
	return list
}

// TestPhases: of payloads by phase the prefill process takes its own, and the one that
// decodes its; the text is that of these two.
func TestPhases(t *testing.T) {
	const quantize = "out_proj=int4@prefill,out_proj=int8/64@decode,x_proj=e5m2"
	dir := "../testdata/golden/jamba"
	on := func(phase, text string) *krait.Model {
		return openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: 2, Payload: text, Phase: phase}})
	}
	prompts, tokens := on("prefill", quantize), on("decode", quantize)
	if got := payloadsOf(prompts); !slices.Equal(got, []string{"e5m2/32", "int4/32"}) {
		t.Errorf("prompts: %v", got)
	}
	if got := payloadsOf(tokens); !slices.Equal(got, []string{"e5m2/32", "int8/64"}) {
		t.Errorf("tokens: %v", got)
	}
	ids := randomIDs(20, prompts.Vocab())
	a, b := sequence(t, on("", "out_proj=int4,x_proj=e5m2")), sequence(t, on("", "out_proj=int8/64,x_proj=e5m2"))
	stepped(t, a, ids[:19]...)
	if err := b.Restore(snapshot(t, a)); err != nil {
		t.Fatal(err)
	}
	var want []int
	for next := ids[19]; len(want) < 4; {
		five := agreement.TopFive(stepped(t, b, next))
		next = five[0]
		want = append(want, next)
	}
	s, _ := serveModel(t, prompts, transfer.ServerOptions{})
	if got := greedy(t, tokens, ids, prefillBy(t, tokens, prefill.Options{Server: s, Strict: true})); !slices.Equal(got.IDs, want) {
		t.Errorf("%v, want %v", got.IDs, want)
	}
	if _, err := krait.Open(dir, krait.Options{Sharding: krait.Sharding{Ranks: 2, Payload: quantize}}); err == nil || !strings.Contains(err.Error(), "differs by phase, but this process runs prefill and decode") {
		t.Error(err)
	}
}

// TestCalibrateIn: each phase is judged alone, by the same tokens: without payloads by as many
// bits, and with them by others.
func TestCalibrateIn(t *testing.T) {
	goldens.CI(t)
	dir := shallow(t, "mamba-a", 1)
	open := func(quantize string, keep []string) (*krait.Model, error) {
		return krait.Open(dir, krait.Options{Slots: 1, Keep: keep, Sharding: krait.Sharding{Ranks: 2, Payload: quantize}})
	}
	windows := krait.Evaluate{Window: 21}
	m := openModel(t, dir, krait.Options{})
	ids := randomIDs(38, m.Vocab())
	want, n := 0.0, 0
	for part := range slices.Chunk(ids, 21) { // the last of which has 17
		s := sequence(t, m)
		half := len(part) / 2
		stepped(t, s, part[:half]...)
		for i := half; i+1 < len(part); i++ {
			want, n = want+surprise(stepped(t, s, part[i]), part[i+1]), n+1
		}
		s.Close()
	}
	want /= float64(n)
	found := map[string]*calibration.Calibration{}
	for _, phase := range passes.Phases {
		c, err := calibration.Run(t.Context(), phase, open, ids, windows, nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(c.Bits-want) > 1e-3*want || c.Phase != phase || c.Choose(0.5).Payload == "" {
			t.Errorf("%s: %g bits, want %g; %+v", phase, c.Bits, want, c.Choose(0.5))
		}
		found[phase] = c
	}
	for i, trial := range found["prefill"].Same {
		if other := found["decode"].Same[i]; trial.Payload == "int4" && (trial.Loss == other.Loss || trial.Loss == 0 || other.Loss == 0) {
			t.Errorf("int4 costs %g and %g", trial.Loss, other.Loss)
		}
	}
	if _, err := calibration.Run(t.Context(), "verify", open, ids, windows, nil); err == nil || !strings.Contains(err.Error(), "it must be prefill or decode") {
		t.Error(err)
	}
	if _, err := calibration.Run(t.Context(), "decode", open, ids[:3], windows, nil); err == nil || !strings.Contains(err.Error(), "at least 4 are needed") {
		t.Error(err)
	}
}

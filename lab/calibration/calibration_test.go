package calibration

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestChoose: on trials made by hand.
func TestChoose(t *testing.T) {
	trial := func(payload string, bytes int64, loss float64) Trial {
		return Trial{Payload: payload, Bytes: bytes, Loss: loss}
	}
	c := &Calibration{Bytes: 1000,
		Sites: []Site{
			{Name: "x", Trials: []Trial{trial("fp16", 900, 0.0001), trial("int8:none", 850, 0.001), trial("none:int8", 850, 0.002), trial("int4:none", 800, 0.02), trial("none:int4", 810, 0.001)}},
			{Name: "y", Trials: []Trial{trial("fp16", 800, 0.0002), trial("int8:none", 700, 0.003), trial("none:int8", 700, -0.01), {Payload: "int4:none", Bytes: 100, Fails: "not finite"}}},
		},
		Same: []Trial{trial("fp16", 700, 0.0003), trial("int8", 400, 0.004), {Payload: "int4", Bytes: 100, Loss: 0.001, Error: 0.02}}}
	for _, w := range []struct {
		budget float64
		want   string
		bytes  int64
	}{
		{-1, "", 1000},
		{0, "x=none,y=none:int8", 700},          // what loses nothing
		{0.0001, "x=fp16,y=none:int8", 600},     //
		{0.002, "x=int8:int4,y=none:int8", 360}, //
		{0.005, "x=int8:int4,y=int8", 60},       // 190+150, and 600
		{0.1, "x=int4,y=int8", 10},              // 390 and 600; the single int4 may lose 0.041 and sends more
		{math.MaxFloat64, "x=int4,y=int8", 10},  //
	} {
		got := c.Choose(w.budget)
		if got.Payload != w.want || got.Bytes != w.bytes || got.Loss > max(0, w.budget) {
			t.Errorf("budget %g: %+v, want %s of %d bytes", w.budget, got, w.want, w.bytes)
		}
		if strings.Contains(got.Payload, "y=int4") {
			t.Errorf("budget %g: takes what fails: %s", w.budget, got.Payload)
		}
		for _, s := range c.Same {
			if s.Fails == "" && s.atMost() <= w.budget && s.Bytes < got.Bytes {
				t.Errorf("budget %g: sends %d bytes, and %s alone %d", w.budget, got.Bytes, s.Payload, s.Bytes)
			}
		}
	}
	// A format for all that was better together than its parts promised.
	c.Same[1].Bytes = 5
	if got := c.Choose(0.1); got.Payload != "x=int8,y=int8" || got.Bytes != 5 {
		t.Errorf("%+v, want int8 at all sites", got)
	}
	c.Sites[0].Trials, c.Sites[1].Trials, c.Same = nil, nil, nil
	if got := c.Choose(0.1); got.Payload != "" || got.Bytes != 1000 {
		t.Errorf("without trials: %+v", got)
	}
}

func TestParseBudget(t *testing.T) {
	for text, want := range map[string]float64{"0.5%": 0.005, "0.005": 0.005, "0": 0, "2%": 0.02} {
		if got, err := ParseBudget(text); err != nil || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "-1%", "x", "NaN", "Inf", "1%%", "0.5 %x"} {
		if got, err := ParseBudget(text); err == nil {
			t.Errorf("%q: %g, and no error", text, got)
		}
	}
}

func embedded(t *testing.T, o krait.Options) *krait.Model {
	t.Helper()
	m, err := krait.Embedded(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestAutoInBudget: what is chosen on one text is within the budget on another, and sends no
// more than the best single format in it.
func TestAutoInBudget(t *testing.T) {
	goldens.CI(t)
	text, err := os.ReadFile("../../testdata/val.txt")
	if err != nil {
		t.Fatal(err)
	}
	ids := func(from, n int) (list []int) {
		for _, b := range text[from : from+n] {
			list = append(list, int(b))
		}
		return list
	}
	const ranks = 2
	open := func(payload string, keep []string) (*krait.Model, error) {
		return krait.Embedded(krait.Options{Slots: 1, Keep: keep, Sharding: krait.Sharding{Ranks: ranks, Payload: payload}})
	}
	ctx, windows := context.Background(), krait.Evaluate{Window: 64}
	c, err := Run(ctx, "", open, ids(0, 256), windows, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sites {
		if s.Largest <= 0 || s.RMS <= 0 || s.RMS > s.Largest || len(s.Rounded) != len(formats) {
			t.Errorf("%s: largest %g, rms %g, %d formats", s.Name, s.Largest, s.RMS, len(s.Rounded))
		}
	}
	held := ids(40000, 512)
	score := func(payload string) float64 {
		m := embedded(t, krait.Options{Slots: 1, Sharding: krait.Sharding{Ranks: ranks, Payload: payload}})
		e, err := m.Evaluate(ctx, held, windows)
		if err != nil {
			t.Fatal(err)
		}
		return e.Bits
	}
	base := score("")
	for _, budget := range []float64{0.002, 0.01} {
		choice := c.Choose(budget)
		if choice.Payload == "" || len(choice.Reasons) == 0 {
			t.Errorf("budget %g: nothing is chosen", budget)
			continue
		}
		if loss := score(choice.Payload)/base - 1; loss > budget {
			t.Errorf("budget %g: %s loses %g on other text", budget, choice.Payload, loss)
		}
		m := embedded(t, krait.Options{Slots: 1, Sharding: krait.Sharding{Ranks: ranks, Payload: choice.Payload}})
		if sent, err := sentBytes(m); err != nil || sent-choice.Bytes > 2 || choice.Bytes-sent > 2 {
			t.Errorf("budget %g: %d bytes are promised, %d planned, %v", budget, choice.Bytes, sent, err)
		}
		for _, s := range c.Same {
			if s.atMost() <= budget && s.Fails == "" && s.Bytes < choice.Bytes {
				t.Errorf("budget %g: %s alone sends %d bytes, the choice %d", budget, s.Payload, s.Bytes, choice.Bytes)
			}
		}
		t.Logf("budget %g: %s, %d of %d bytes", budget, choice.Payload, choice.Bytes, c.Bytes)
	}
}

// TestCalibrationFits: a calibration is taken where graph and weights are those that it was made
// of, whatever outputs are asked for, and refused by name where one is another.
func TestCalibrationFits(t *testing.T) {
	dir := "../../testdata/golden/mamba-a"
	m, err := krait.Open(dir, krait.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	weights, err := m.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ graph, weights, want string }{
		{fingerprint(m.Graph()), weights, ""},
		{"", "", `the calibration is of another model: of "other" with graph none, and this is`},
		{"0123456789abcdef", weights, `the calibration is of another model: of "other" with graph 0123456789ab, and this is`},
		{fingerprint(m.Graph()), "0123456789abcdef", `the calibration is of other weights: of "other" with fingerprint 0123456789ab, and this is mamba with ` + weights[:12]},
	} {
		c := &Calibration{Model: "other", Graph: w.graph, Weights: w.weights}
		for _, ranks := range []int{1, 2} {
			m, err := krait.Open(dir, krait.Options{Keep: []string{"norm_f"}, Sharding: krait.Sharding{Ranks: ranks, Check: c.Check}})
			if err == nil {
				m.Close()
			}
			if (err == nil) != (w.want == "") || err != nil && !strings.Contains(err.Error(), w.want) {
				t.Errorf("%+v: %v", w, err)
			}
		}
	}
}

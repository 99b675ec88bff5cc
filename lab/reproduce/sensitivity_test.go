package reproduce

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
)

// TestSensitivity: docs/reproduction/sensitivity.md is up to date, in a figure that is drawn or,
// with KRAIT_TEST_ALL, as a whole.
func TestSensitivity(t *testing.T) {
	goldens.CI(t)
	text, err := os.ReadFile("../../docs/reproduction/sensitivity.md")
	if err != nil {
		t.Fatal(err)
	}
	if goldens.All() {
		r := &Report{lab: newLab()}
		if err := r.Assume(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if sensitivities(r.Sensitive) != string(text) {
			t.Error("it is not what comes out; krait reproduce -o docs/reproduction writes it anew")
		}
		replicas(t, r.Sensitive)
		return
	}
	claims, err := readClaims()
	if err != nil {
		t.Fatal(err)
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return !c.sensitive() })
	c := rapid.SampledFrom(claims).Example(int(prop.Seed(t) % 1000))
	s, err := newLab().sensitivity(&c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), s.row()) {
		t.Errorf("it does not have this row; krait reproduce -o docs/reproduction writes it anew: %s", s.row())
	}
}

// replicas fails where what the report says of gains over replicas is not so: of the A100's some
// are inside with a share of replicas, and with nothing else, and no share brings one of the A6000
// near.
func replicas(t *testing.T, list []Sensitivity) {
	t.Helper()
	for a := range assumptions {
		for v := range assumptions[a].values {
			near, inside := map[string]int{}, map[string]int{}
			for _, s := range list {
				if strings.HasPrefix(s.Claim, "throughput") && strings.Contains(s.Claim, "vs_DP") {
					if s.explains(a, v) {
						near[s.Machine+s.Claim[len(s.Claim)-2:]]++
					}
					if s.Trials[a][v].Outside == 0 {
						inside[s.Machine]++
					}
				}
			}
			name, want := assumptions[a].name+" "+assumptions[a].text(v), map[string]int{"replicas 90 %": 2, "replicas 80 %": 1}
			if inside["A100"] != want[name] || inside["A6000"] > 0 {
				t.Errorf("%s: %v are inside", name, inside)
			}
			if is := assumptions[a].name == "replicas"; is && (near["A6000.2"]+near["A6000.4"] > 0 || v > 2 && near["A100.4"] > 0) || v == 0 && near["A100.2"]+near["A100.4"] != 6 {
				t.Errorf("%s: %v are near", name, near)
			}
		}
	}
}

// TestCells: a cell has the values that bring a figure near, those inside in bold, or how far
// outside the nearest is.
func TestCells(t *testing.T) {
	list := make([]Trial, len(assumptions[0].values))
	s := Sensitivity{Near: 15, Trials: [][]Trial{list}}
	for _, c := range []struct {
		outside []float64
		want    string
	}{
		{[]float64{99, 50, -16, 40}, "-16"},
		{[]float64{99, 50, -15, 0, 15, 15.1}, "×2, **×3**, ×4"},
		{[]float64{10, 20, 30}, "–"},
		{[]float64{20, 21, math.MaxFloat32}, "+20"},
	} {
		for i := range list {
			list[i] = Trial{Value: assumptions[0].text(i), Outside: 1000}
			if i < len(c.outside) {
				list[i].Outside = c.outside[i]
			}
		}
		if got := s.cell(0); got != c.want {
			t.Errorf("%v: %s, want %s", c.outside, got, c.want)
		}
	}
}

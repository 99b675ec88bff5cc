package agreement

import (
	"context"
	"os"
	"testing"

	"github.com/krait-ml/krait"
)

// TestAgreement: what each measure counts, on logits made by hand.
func TestAgreement(t *testing.T) {
	base := []float32{9, 8, 7, 6, 5, 4}
	var a Agreement
	for _, c := range []struct {
		logits []float32
		want   Agreement // after this token too, as sums
	}{
		{base, Agreement{1, 1, 1, 1, 1, 1}},
		{[]float32{9, 7, 8, 6, 5, 4}, Agreement{2, 2, 1, 2, 1.6, 2}},     // the second and third change places
		{[]float32{9, 8, 7, 6, 4, 5}, Agreement{3, 3, 1, 2, 2.4, 2.8}},   // another fifth
		{[]float32{5, 6, 7, 8, 9, 4}, Agreement{4, 3, 1, 3, 2.6, 3.8}},   // backwards
		{[]float32{4, 9, 8, 7, 6, 5}, Agreement{5, 3, 1, 3, 2.6, 4.6}},   // all one place on
		{[]float32{9, 9, 9, 9, 9, 9}, Agreement{6, 4, 2, 4, 3.6, 5.6}},   // equal logits go by id
		{[]float32{-4, 8, 7, 6, 9, -9}, Agreement{7, 4, 2, 5, 4.2, 6.6}}, // the first and last change places
	} {
		a.add(TopFive(base), TopFive(c.logits))
		if !near(a, c.want) {
			t.Fatalf("after %v: %+v, want %+v", c.logits, a, c.want)
		}
	}
}

func near(a, b Agreement) bool {
	close := func(x, y float64) bool { return x-y < 1e-9 && y-x < 1e-9 }
	return a.Tokens == b.Tokens && close(a.Top1, b.Top1) && close(a.Top5Ordered, b.Top5Ordered) && close(a.Top5Set, b.Top5Set) &&
		close(a.Top5Places, b.Top5Places) && close(a.Top5Unordered, b.Top5Unordered)
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

// TestAgree: a model agrees with itself in everything, and with rounded payloads in
// most; the measures are ordered as their definitions are.
func TestAgree(t *testing.T) {
	plain := embedded(t, krait.Options{Sharding: krait.Sharding{Ranks: 2}})
	data, err := os.ReadFile("../../testdata/val.txt")
	if err != nil {
		t.Fatal(err)
	}
	var text []int
	for _, b := range data[:300] {
		text = append(text, int(b))
	}
	for _, payload := range []string{"", "bf16"} {
		a, err := Measure(context.Background(), embedded(t, krait.Options{Sharding: krait.Sharding{Ranks: 2, Payload: payload}}), plain, text, krait.Evaluate{Window: 100})
		if err != nil {
			t.Fatal(err)
		}
		if payload == "" && !near(*a, Agreement{297, 1, 1, 1, 1, 1}) {
			t.Errorf("with itself: %+v", a)
		}
		if a.Top5Ordered < 0.5 || a.Top5Ordered > a.Top5Places || a.Top5Ordered > a.Top5Set || a.Top5Set > a.Top5Unordered || a.Top5Places > a.Top5Unordered || a.Top5Ordered > a.Top1 {
			t.Errorf("%q: %+v", payload, a)
		}
	}
	for _, c := range []struct {
		ids []int
		o   krait.Evaluate
	}{{text[:1], krait.Evaluate{}}, {nil, krait.Evaluate{}}, {text, krait.Evaluate{Window: 1}}, {text, krait.Evaluate{Window: -1}}} {
		if _, err := Measure(context.Background(), plain, plain, c.ids, c.o); err == nil {
			t.Errorf("%d tokens in windows of %d were compared", len(c.ids), c.o.Window)
		}
	}
}

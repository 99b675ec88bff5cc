package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
)

func saves(t *testing.T, s *seq) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSave: a sequence resumes from a file that another saved, on as many ranks, on another
// device, in another model of the same folder, to the last bit.
func TestSave(t *testing.T) {
	for k, name := range []string{"mamba-a", "mamba2-g1", "jamba", "zamba2", "attention"} {
		for i, states := range []string{"", "conv=bf16", ""} {
			if i != (k+2)%3 && !goldens.All() {
				continue
			}
			dir, o := "../testdata/golden/"+name, krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: 1 + i, States: states}}
			if name == "attention" {
				dir, o.Sharding.States = attentionOnly(t), ""
			}
			m := openModel(t, dir, o)
			for _, n := range []int{0, 19} {
				one := sequence(t, m)
				if ids := randomIDs(n, m.Vocab()); n > 0 {
					stepped(t, one, ids...)
				}
				data, want := saves(t, one), snapshot(t, one)
				if i == 1 && name == "jamba" {
					o.Device = &cuda.Device{Driver: sim.New(sim.Options{NoBLAS: true})}
				}
				o.Keep = []string{"norm_f"} // an output more
				two := sequence(t, openModel(t, dir, o))
				if o.Device == nil {
					stepped(t, two, 3, 4)
				}
				if err := two.Load(bytes.NewReader(data)); err != nil {
					t.Fatal(name, err)
				}
				if !bytes.Equal(saves(t, two), data) {
					t.Errorf("%s on %d ranks: what was loaded is saved otherwise", name, 1+i)
				}
				sameSnapshot(t, name, snapshot(t, two), want)
				if o.Device == nil {
					if !sameBits(stepped(t, two, 5, 6), stepped(t, one, 5, 6)) {
						t.Errorf("%s on %d ranks goes on otherwise", name, 1+i)
					}
				}
				one.Close()
			}
		}
	}
}

// TestLoadRefuses: what is of another model, or lies otherwise, or is damaged, is an error that
// says so, and leaves the sequence as it was.
func TestLoadRefuses(t *testing.T) {
	jamba := "../testdata/golden/jamba"
	o := krait.Options{Slots: 1, Sharding: krait.Sharding{Ranks: 2}}
	one := sequence(t, openModel(t, jamba, o))
	stepped(t, one, 1, 2, 3)
	data := saves(t, one)
	for _, c := range []struct {
		dir  string
		o    krait.Options
		want string
	}{
		{"../testdata/golden/zamba2", o, "it is of another model: of jamba with fingerprint"},
		{"../testdata/golden/mamba-a-bf16", o, "it is of another model"},
		{jamba, krait.Options{}, "its states are sharded or stored differently: 2 ranks by strategy channel, states in f32, and here 1 rank, states in f32"},
		{jamba, krait.Options{Sharding: krait.Sharding{Ranks: 3}}, "and here 3 ranks"},
		{jamba, krait.Options{Sharding: krait.Sharding{Ranks: 2, States: "cache=f16"}}, "and here 2 ranks by strategy channel, states in cache=f16"},
		{jamba, krait.Options{Context: 2, Sharding: krait.Sharding{Ranks: 2}}, "open the model with more context"},
	} {
		two := sequence(t, openModel(t, c.dir, c.o))
		stepped(t, two, 9)
		before := snapshot(t, two)
		if err := two.Load(bytes.NewReader(data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v", c.dir, c.o.Sharding, err)
		}
		sameSnapshot(t, c.dir, snapshot(t, two), before)
	}
	before := snapshot(t, one)
	for _, i := range []int{3, 9, 40, 300, len(data) / 2, len(data) - 40, len(data) - 1} {
		bad := bytes.Clone(data)
		bad[i] ^= 16
		for what, x := range map[string][]byte{"flipped": bad, "cut": data[:i]} {
			if err := one.Load(bytes.NewReader(x)); err == nil || !strings.HasPrefix(err.Error(), "the sequence cannot be loaded: it ") {
				t.Errorf("byte %d of %d %s: %v", i, len(data), what, err)
			}
			sameSnapshot(t, fmt.Sprint(i), snapshot(t, one), before)
		}
	}
	one.m.Close()
	if err := one.Load(bytes.NewReader(data)); err == nil {
		t.Error("a closed model loads")
	}
	m := openModel(t, jamba, o)
	two := sequence(t, m)
	m.Close()
	if err := two.Save(&bytes.Buffer{}); err == nil {
		t.Error("a closed model saves")
	}
}

// TestFingerprint: it is of weights, too.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"mamba-a", "mamba-a-bf16", "mamba-a-fp16", "mamba-b", "jamba"} {
		o, err := openModel(t, "../testdata/golden/"+name, krait.Options{}).Session().Origin()
		if err != nil || seen[o.Model] != "" {
			t.Errorf("%s has the fingerprint of %s: %v", name, seen[o.Model], err)
		}
		seen[o.Model] = name
	}
	other := attentionOnly(t)
	a, _ := openModel(t, other, krait.Options{}).Session().Origin()
	weightOf(t, other)
	if b, _ := openModel(t, other, krait.Options{}).Session().Origin(); a.Model == b.Model || a.Layout != b.Layout {
		t.Error("one bit of a weight is another, and the fingerprint is not")
	}
}

// weightOf changes the last bit of the last weight.
func weightOf(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-4] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

package check

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/safetensors"
)

const golden = "../../testdata/golden/mamba-a"

// edited writes the golden's numbers with a change.
func edited(t *testing.T, edit func(map[string]safetensors.Tensor)) string {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(golden, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensors := map[string]safetensors.Tensor{}
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		x.Data = slices.Clone(x.Data)
		tensors[name] = x
	}
	edit(tensors)
	var list []safetensors.Tensor
	for name, x := range tensors {
		x.Name = name
		list = append(list, x)
	}
	path := filepath.Join(t.TempDir(), "expected.safetensors")
	if err := safetensors.WriteFile(path, list, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func runCheck(t *testing.T, expected string) (bool, map[string]Line, error) {
	t.Helper()
	lines := map[string]Line{}
	ok, err := Run(context.Background(), golden, Options{Expected: expected, Tolerance: 1e-4, Chunks: []int{3}}, func(l Line) {
		lines[l.Prompt+"/"+l.Quantity] = l
	})
	return ok, lines, err
}

// add changes element i of an f32 tensor.
func add(x safetensors.Tensor, i int, d float32) {
	v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:]))
	binary.LittleEndian.PutUint32(x.Data[4*i:], math.Float32bits(v+d))
}

// TestFindsEveryChange: one changed number in any of several tensors fails those quantities and no
// others, and is found where it is. Two runs share the tensors.
func TestFindsEveryChange(t *testing.T) {
	for _, changes := range []map[string][]int{{
		"a.logits": {1, 20, 7}, "a.layers.2.out": {1, 0, 0}, "a.state.layers.1.ssm": {1, 100, 3}, "b.decode.logits": {0, 15, 255},
		"a.mixer0.dt": {1, 2, 30}, "a.mixer0.x_proj": {0, 3, 39},
	}, {
		"a.embeddings": {0, 36, 63}, "a.final_norm": {1, 36, 1}, "b.state.layers.0.conv": {0, 5, 1},
		"b.decode.state.layers.2.ssm": {0, 127, 15}, "a.mixer0.B": {1, 36, 15},
	}} {
		ok, lines, err := runCheck(t, edited(t, func(m map[string]safetensors.Tensor) {
			for name, at := range changes {
				x, i := m[name], 0
				for k, n := range x.Shape {
					i = i*n + at[k]
				}
				add(x, i, 0.01)
			}
		}))
		if ok || err != nil {
			t.Errorf("%v: %v, %v", changes, ok, err)
		}
		found := 0
		for key, l := range lines {
			at, changed := changes[strings.Replace(key, "/", ".", 1)]
			if changed {
				found++
			}
			if changed != (l.Fail != "") || changed && !slices.Equal(l.At, at) {
				t.Errorf("%s, changed at %v: %q at %v", key, at, l.Fail, l.At)
			}
		}
		if found != len(changes) {
			t.Errorf("%d of %d changed quantities were compared", found, len(changes))
		}
	}
}

func TestNaNFails(t *testing.T) {
	ok, lines, err := runCheck(t, edited(t, func(m map[string]safetensors.Tensor) { add(m["b.logits"], 0, float32(math.NaN())) }))
	if l := lines["b/logits"]; ok || err != nil || !math.IsInf(l.Max, 1) || l.Fail == "" {
		t.Errorf("%v, %v, %+v", ok, err, l)
	}
}

// TestOtherFiles: any names of prompts, quantities left out, quantities that
// is unknown, and no continuation of the file's own.
func TestOtherFiles(t *testing.T) {
	ok, lines, err := runCheck(t, edited(t, func(m map[string]safetensors.Tensor) {
		all := map[string]safetensors.Tensor{}
		for name, x := range m {
			if rest, is := strings.CutPrefix(name, "a."); is && (rest == "input_ids" || rest == "logits") {
				all["prompt.a."+rest] = x
			}
			if rest, is := strings.CutPrefix(name, "b."); is && rest != "decode.ids" {
				all["prompt.a.longer."+rest] = x
			}
		}
		all["prompt.a.mood"] = m["b.logits"]
		all["prompt.a.logits0.experts"] = m["b.input_ids"]
		clear(m)
		for name, x := range all {
			m[name] = x
		}
	}))
	if !ok || err != nil {
		t.Errorf("%v, %v: %+v", ok, err, lines)
	}
	if l := lines["prompt.a/mood"]; l.Skip == "" {
		t.Errorf("an unknown quantity: %+v", l)
	}
	if l := lines["prompt.a.longer/decode.logits"]; l.At == nil {
		t.Errorf("decoding without ids in the file: %+v", l)
	}
	if l := lines["prompt.a/logits0.experts"]; !strings.HasPrefix(l.Skip, "integers") {
		t.Errorf("integers: %+v", l)
	}
	if len(lines) != 2+1+1+6+1+6 {
		t.Errorf("%d lines: %v", len(lines), lines)
	}
}

func TestShapesAreChecked(t *testing.T) {
	ok, lines, err := runCheck(t, edited(t, func(m map[string]safetensors.Tensor) {
		x := m["b.logits"]
		x.Shape = []int{5, 256}
		m["b.logits"] = x
	}))
	if want := "has shape [5 256] in the file, the model gives [1 5 256]"; ok || err != nil || lines["b/logits"].Fail != want {
		t.Errorf("%v, %v, %+v", ok, err, lines["b/logits"])
	}
}

func TestRefuses(t *testing.T) {
	for want, edit := range map[string]func(map[string]safetensors.Tensor){
		"no prompt":                 func(m map[string]safetensors.Tensor) { delete(m, "a.input_ids"); delete(m, "b.input_ids") },
		"it has nothing to compare": func(m map[string]safetensors.Tensor) { x := m["b.input_ids"]; clear(m); m["b.input_ids"] = x },
		"expected [batch, length]":  func(m map[string]safetensors.Tensor) { x := m["b.input_ids"]; x.Shape = []int{5}; m["b.input_ids"] = x },
		"an empty prompt": func(m map[string]safetensors.Tensor) {
			m["c.input_ids"] = safetensors.Tensor{DType: "I64", Shape: []int{1, 0}}
		},
		"ids go from 0 to 255":       func(m map[string]safetensors.Tensor) { m["b.input_ids"].Data[1] = 7 },
		"decode.ids has 2 rows, the": func(m map[string]safetensors.Tensor) { m["b.decode.ids"] = m["a.decode.ids"] },
	} {
		if _, _, err := runCheck(t, edited(t, edit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

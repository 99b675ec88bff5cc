package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchs: both architectures have the same kernels, whose only difference is
// the target, so that testing one tests both.
func TestArchs(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		want         string
	}{{7, 5, ""}, {8, 0, "sm_80"}, {8, 9, "sm_80"}, {9, 0, "sm_90"}, {10, 0, "sm_90"}, {12, 1, "sm_90"}} {
		if got := Arch(c.major, c.minor); got != c.want {
			t.Errorf("for %d.%d the kernels are those of %q, want %q", c.major, c.minor, got, c.want)
		}
	}
	old, new := PTX("sm_80"), PTX("sm_90")
	sources, err := filepath.Glob("*.cu")
	if err != nil || len(old) != len(sources) || len(new) != len(sources) || PTX("") != nil || PTX("sm_1") != nil {
		t.Fatalf("%d sources, %d and %d modules, %v", len(sources), len(old), len(new), err)
	}
	for name, text := range old {
		if want := strings.Replace(string(text), ".target sm_80", ".target sm_90", 1); string(new[name]) != want {
			t.Errorf("module %s is not the same for both architectures", name)
		}
	}
}

// TestNoLocalMemory: no kernel has arrays or spilled registers in memory of its
// own; that would be slow.
func TestNoLocalMemory(t *testing.T) {
	for name, text := range PTX("sm_80") {
		if i := strings.Index(string(text), ".local"); i >= 0 {
			entry := regexp.MustCompile(`\.entry (\w+)`).FindAllStringSubmatch(string(text[:i]), -1)
			t.Errorf("module %s: %s has local memory", name, entry[len(entry)-1][1])
		}
	}
}

// TestPTXText: the PTX says nothing about the machine that it was made on, and
// which compiler made it is known.
func TestPTXText(t *testing.T) {
	version, err := os.ReadFile("ptx/COMPILER")
	if err != nil || !strings.Contains(string(version), "clang version") {
		t.Errorf("the compiler is %q: %v", version, err)
	}
	for name, text := range PTX("sm_80") {
		if found := regexp.MustCompile(`//|\.file|\.loc\b`).FindString(string(text)); found != "" {
			t.Errorf("module %s contains %s", name, found)
		}
		if !strings.HasPrefix(string(text), ".version 7.8\n") {
			t.Errorf("module %s begins with %.20q", name, text)
		}
	}
}

// TestParams: parameters lie as in C.
func TestParams(t *testing.T) {
	got := Params(1, uint64(2), true, Struct{3, Struct{int64(4), float32(1)}, false}, float64(1), false)
	want := []byte{
		1, 0, 0, 0, 0, 0, 0, 0,
		2, 0, 0, 0, 0, 0, 0, 0,
		1, 0, 0, 0, 0, 0, 0, 0,
		3, 0, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
		0, 0, 0, 0,
	}
	if string(got) != string(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

package cuda

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/internal/goldens"
)

// TestModules: every source has its module, for the least GPU that they run on, so
// that one set serves all.
func TestModules(t *testing.T) {
	for major, want := range map[int]bool{7: false, 8: true, 9: true, 12: true} {
		if Runs(major, 5) != want {
			t.Errorf("runs on %d.5: %v", major, !want)
		}
	}
	sources, err := filepath.Glob("*.cu")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(source, ".cu")
		formats := regexp.MustCompile(`(?m)^// Formats: (.*)$`).FindSubmatch(text)
		if formats == nil {
			want[name] = true
			continue
		}
		names := strings.Fields(string(formats[1]))
		if i := slices.Index(names, "BLOCKS"); i >= 0 {
			names = slices.Delete(names, i, i+1)
			for _, d := range blockFormats() {
				names = append(names, d.String())
			}
		}
		for _, format := range names {
			want[name+"_"+format] = true
		}
	}
	for name := range want {
		text := string(PTX()[name])
		if !strings.Contains(text, "\n.target sm_80\n") || !strings.Contains(text, ".entry") {
			t.Errorf("%s has no kernels for compute capability 8.0", name)
		}
	}
	for name := range PTX() {
		if !want[name] {
			t.Errorf("no source gives module %s", name)
		}
	}
}

// TestModuleOfFormat: a module of products has those of its own format only, so that a
// model does not wait for the driver to compile the others.
func TestModuleOfFormat(t *testing.T) {
	entry := regexp.MustCompile(`\.entry (\w+)`)
	for _, module := range []string{"matmul", "matmul_mma"} {
		for _, format := range []string{"f32", "f16", "bf16"} {
			for _, m := range entry.FindAllSubmatch(PTX()[module+"_"+format], -1) {
				if !slices.Contains(strings.Split(string(m[1]), "_"), format) {
					t.Errorf("module %s_%s has %s", module, format, m[1])
				}
			}
		}
	}
}

// declared parses a module without the code of its kernels.
func declared(name string) (*ptx.Module, error) {
	var short strings.Builder
	for text, more := string(PTX()[name]), true; more; {
		var head string
		head, text, more = strings.Cut(text, begin)
		short.WriteString(head)
		if more {
			short.WriteString(begin + "\tret;\n}\n")
			_, text, _ = strings.Cut(text, "\n}\n")
		}
	}
	return ptx.Parse(name, short.String())
}

// TestSource: what is loaded for a kernel has it and no other, as it is in its module, and all
// that it names. By default modules are tried that have a kernel of which none of another format
// was.
func TestSource(t *testing.T) {
	goldens.CI(t)
	names, families, few := map[string]bool{}, map[string]bool{}, goldens.Few(t)
	for _, module := range slices.Sorted(maps.Keys(PTX())) {
		entries, err := declared(module)
		if err != nil {
			t.Fatal(err)
		}
		seen := func(kernel string) bool { return families[family(module+"."+kernel)] }
		if few && !slices.ContainsFunc(entries.Entries(), func(kernel string) bool { return !seen(kernel) }) {
			continue
		}
		whole, err := ptx.Parse(module, string(PTX()[module]))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(whole.Entries(), entries.Entries()) {
			t.Errorf("module %s has the kernels %v, and %v are declared", module, whole.Entries(), entries.Entries())
		}
		for _, kernel := range whole.Entries() {
			families[family(module+"."+kernel)] = true
			l := Launch{Module: module, Function: kernel}
			name, text := l.Source()
			m, err := ptx.Parse(name, string(text))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Entries(); len(got) != 1 || got[0] != kernel || names[name] {
				t.Fatalf("%s has the kernels %v, or is not the first of its name", name, got)
			}
			names[name] = true
			got, _ := m.Entry(kernel)
			want, _ := whole.Entry(kernel)
			if got.Instrs() != want.Instrs() || got.SharedBytes() != want.SharedBytes() || got.ParamBytes() != want.ParamBytes() {
				t.Errorf("%s is not what its module has", name)
			}
		}
	}
	if _, text := (&Launch{Module: "norm", Function: "rmsnor"}).Source(); text != nil {
		t.Error("a kernel that does not exist has PTX")
	}
}

// TestDependentSource: what is loaded where launches may be dependent waits once in each kernel, is
// for a GPU that knows how, loads by .nc only what may come early, and is else what it was.
func TestDependentSource(t *testing.T) {
	goldens.CI(t)
	const begins = "\tgriddepcontrol.launch_dependents;\n"
	for name, text := range PTX() {
		got := string(Dependent(text))
		if kernels, waits := strings.Count(got, ".entry "), strings.Count(got, begin+begins); kernels == 0 || waits != kernels || strings.Count(got, wait) != kernels {
			t.Errorf("module %s: %d of %d kernels wait", name, waits, kernels)
		}
		if strings.Contains(strings.ReplaceAll(got, early, ""), ".nc") || !strings.Contains(got, "\n.target sm_90\n") {
			t.Errorf("module %s loads by .nc, or is for another GPU", name)
		}
		plain := strings.NewReplacer(begins, "", wait, "", await, "", ".target sm_90", ".target sm_80", "ld.global.nc.", "ld.global.")
		if plain.Replace(got) != plain.Replace(string(text)) {
			t.Errorf("module %s is another", name)
		}
	}
}

// TestNoLocalMemory: no kernel has arrays or spilled registers in memory of its
// own; that would be slow.
func TestNoLocalMemory(t *testing.T) {
	for name, text := range PTX() {
		if i := strings.Index(string(text), ".local"); i >= 0 {
			entry := regexp.MustCompile(`\.entry (\w+)`).FindAllStringSubmatch(string(text[:i]), -1)
			t.Errorf("module %s: %s has local memory", name, entry[len(entry)-1][1])
		}
	}
}

// TestLargeParamsLast: only its last parameter may have more than 8 bytes. Through
// gorgonia.org/cu, others cannot be passed.
func TestLargeParamsLast(t *testing.T) {
	for name := range PTX() {
		module, err := declared(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, function := range module.Entries() {
			entry, _ := module.Entry(function)
			for i, p := range entry.Params() {
				if p.Size > 8 && i < len(entry.Params())-1 {
					t.Errorf("kernel %s of module %s: parameter %d of %d has %d bytes", function, name, i+1, len(entry.Params()), p.Size)
				}
			}
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
	for name, text := range PTX() {
		for _, of := range []string{"//", ".file", ".loc ", ".loc\t"} {
			if strings.Contains(string(text), of) {
				t.Errorf("module %s contains %q", name, of)
			}
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

// TestLines: no line of a kernel is over 120 columns, with tabs of four.
func TestLines(t *testing.T) {
	for _, pattern := range []string{"*.cu", "*.h", "testdata/bugs/*.cu"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			number := 0
			for line := range strings.Lines(strings.ReplaceAll(string(text), "\t", "    ")) {
				if number++; utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 120 {
					t.Errorf("%s:%d is over 120 columns", file, number)
				}
			}
		}
	}
}

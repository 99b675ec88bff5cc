package cuda

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/ptxas.md by what the ptxas of KRAIT_PTXAS says")

// assembled is what NVIDIA's assembler made of a kernel.
type assembled struct{ registers, shared, stack, stores, loads int }

// gpus are the compute capabilities that are assembled for: those that the oldest
// toolkit with the youngest of them knows.
var gpus = []string{"8.0", "8.6", "8.9", "9.0"}

// assembledFile has a digest of each module of docs/ptxas.md, and of the ptxas that assembled it.
const assembledFile = "testdata/assembled.txt"

// TestPTXAS: NVIDIA's assembler takes all modules for all GPUs, no kernel spills, and
// docs/ptxas.md says what each takes. scripts/cuda-toolkit finds a ptxas. With KRAIT_PTXAS_GPU,
// such as 8.6, a module that assembledFile names is assembled for that GPU alone, and with -update
// for none: the same assembler took the same text when the table was written.
func TestPTXAS(t *testing.T) {
	ptxas := os.Getenv("KRAIT_PTXAS")
	if ptxas == "" {
		t.Skip("KRAIT_PTXAS does not name a ptxas: what NVIDIA's assembler says of the kernels is not checked")
	}
	version := release(t, ptxas)
	table := fmt.Sprintf("<!-- Written by go test ./kernels/cuda -run PTXAS -update; not to be edited. -->\n\n# What kernels take\n\n"+
		"Registers of a thread, by compute capability, and static shared memory of a block in\n"+
		"bytes, by %s. No kernel has a stack or spills.\n\n"+
		"| module | kernel | %s | shared |\n|---|---|%s---|\n", version, strings.Join(gpus, " | "), strings.Repeat("---|", len(gpus)))
	file := filepath.Join("..", "..", "docs", "ptxas.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(PTX()))
	lines, digests := make([]string, len(names)), digestsOf(version, names)
	known := map[string]map[string][]assembled{} // by module and kernel
	one := os.Getenv("KRAIT_PTXAS_GPU")
	if one != "" && !slices.Contains(gpus, one) {
		t.Fatalf("KRAIT_PTXAS_GPU is %s; it must be one of %v", one, gpus)
	}
	if one != "" || *update {
		known = knownModules(t, string(text), digests)
	}
	t.Run("modules", func(t *testing.T) {
		for i, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lines[i] = tableOf(t, ptxas, name, known[name])
			})
		}
	})
	table += strings.Join(lines, "")
	if *update {
		if err := os.WriteFile(assembledFile, []byte(strings.Join(digests, "")), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("registers.txt", []byte(registersOf(table)), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(table), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !strings.Contains(string(text), version) {
		t.Skipf("docs/ptxas.md is of another ptxas than %s: it is not compared", version)
	}
	for i, want := range strings.Split(table, "\n") {
		if lines := strings.Split(string(text), "\n"); i >= len(lines) || lines[i] != want {
			t.Fatalf("docs/ptxas.md is not what ptxas says, from line %d on; it says\n%s\nIf that is as it should be, run the test with -update.", i+1, want)
		}
	}
}

// digestsOf has a line for each module.
func digestsOf(version string, modules []string) (lines []string) {
	for _, name := range modules {
		sum := sha256.Sum256(slices.Concat([]byte(version+"\n"), PTX()[name]))
		lines = append(lines, fmt.Sprintf("%s %x\n", name, sum[:12]))
	}
	return lines
}

// knownModules reads the kernels of modules, of these digests, from the table of the docs.
func knownModules(t *testing.T, table string, digests []string) map[string]map[string][]assembled {
	t.Helper()
	file, err := os.ReadFile(assembledFile)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string][]assembled{}
	for line := range strings.Lines(string(file)) {
		if slices.Contains(digests, line) {
			known[strings.Fields(line)[0]] = map[string][]assembled{}
		}
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3+len(gpus) || known[cells[0]] == nil {
			continue
		}
		list := make([]assembled, len(gpus))
		for i := range list {
			if _, err := fmt.Sscan(cells[2+i]+" "+cells[2+len(gpus)], &list[i].registers, &list[i].shared); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		known[cells[0]][cells[1]] = list
	}
	t.Logf("%d of %d modules are known", len(known), len(digests))
	return known
}

// registersOf is registers.txt by the table of the docs.
func registersOf(table string) (text string) {
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 7 && !strings.HasPrefix(line, "| module") {
			text += strings.TrimPrefix(strings.Join(cells[:6], " "), "| ") + "\n"
		}
	}
	return text
}

// TestRegisters: the program has the registers of docs/ptxas.md, of every kernel.
func TestRegisters(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "..", "docs", "ptxas.md"))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("registers.txt", []byte(registersOf(string(table))), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if registersText != registersOf(string(table)) {
		t.Error("registers.txt is not what docs/ptxas.md says: run this test with -update")
	}
	if Registers("norm", "rmsnorm", [2]int{9, 0}) == 0 || Registers("norm", "rmsnorm", [2]int{12, 0}) != Registers("norm", "rmsnorm", [2]int{9, 0}) {
		t.Error("registers of rmsnorm are not found")
	}
}

// release is the line of its version in which ptxas says which it is.
func release(t *testing.T, ptxas string) string {
	out, err := exec.Command(ptxas, "--version").CombinedOutput()
	line := regexp.MustCompile(`release [\d.]+, (V[\d.]+)`).FindSubmatch(out)
	if err != nil || line == nil {
		t.Fatalf("%s --version: %v\n%s", ptxas, err, out)
	}
	return fmt.Sprintf("ptxas %s", line[1])
}

// tableOf assembles a module for all GPUs, or one if its kernels are known; a line for each kernel.
func tableOf(t *testing.T, ptxas, module string, known map[string][]assembled) string {
	dir, all := t.TempDir(), map[string][]assembled{}
	for i, gpu := range gpus {
		if known != nil && gpu != os.Getenv("KRAIT_PTXAS_GPU") {
			for kernel, list := range known {
				all[kernel] = append(all[kernel], list[i])
			}
			continue
		}
		sm := "sm_" + strings.ReplaceAll(gpu, ".", "")
		file := filepath.Join(dir, module+sm+".ptx")
		load := Independent
		if gpu == "9.0" {
			load = Dependent
		}
		text := load(PTX()[module])
		if err := os.WriteFile(file, text, 0o666); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(ptxas, "-v", "-arch="+sm, "-o", os.DevNull, file).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte("warning")) {
			t.Errorf("module %s, %s: %v\n%s", module, sm, err, out)
		}
		for kernel, a := range parsePTXAS(t, string(out)) {
			if a.stack != 0 || a.stores != 0 || a.loads != 0 {
				t.Errorf("kernel %s of module %s, %s: %d bytes of stack, %d of spill stores, %d of spill loads", kernel, module, sm, a.stack, a.stores, a.loads)
			}
			all[kernel] = append(all[kernel], a)
		}
	}
	if want := bytes.Count(PTX()[module], []byte(".entry")); len(all) != want {
		t.Errorf("module %s has %d kernels, ptxas speaks of %d", module, want, len(all))
	}
	lines := ""
	for _, kernel := range slices.Sorted(maps.Keys(all)) {
		lines += fmt.Sprintf("| %s | %s |", module, kernel)
		for _, a := range all[kernel] {
			lines += fmt.Sprintf(" %d |", a.registers)
			if a.shared != all[kernel][0].shared {
				t.Errorf("kernel %s of module %s has %d bytes of shared memory on one GPU, %d on another", kernel, module, a.shared, all[kernel][0].shared)
			}
		}
		lines += fmt.Sprintf(" %d |\n", all[kernel][0].shared)
	}
	return lines
}

var (
	kernelLine = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	stackLine  = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine   = regexp.MustCompile(`Used (\d+) registers(?:.*?, (\d+) bytes smem)?`)
)

// parsePTXAS reads what ptxas -v says, kernel by kernel.
func parsePTXAS(t *testing.T, out string) map[string]assembled {
	all := map[string]assembled{}
	at := kernelLine.FindAllStringSubmatchIndex(out, -1)
	for i, m := range at {
		end := len(out)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text := out[m[0]:end]
		stack, used := stackLine.FindStringSubmatch(text), usedLine.FindStringSubmatch(text)
		if stack == nil || used == nil {
			t.Fatalf("ptxas -v is not understood:\n%s", text)
		}
		var a assembled
		for i, into := range []*int{&a.stack, &a.stores, &a.loads} {
			fmt.Sscan(stack[i+1], into)
		}
		fmt.Sscan(used[1], &a.registers)
		fmt.Sscan(used[2], &a.shared)
		all[out[m[2]:m[3]]] = a
	}
	return all
}

package cpu

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/kernels"
)

// eachISA runs a test of an operation's kernel of each instruction set of this machine.
func eachISA(t *testing.T, op string, test func(t *testing.T, isa string, k kernels.Kernel)) {
	for _, isa := range ISAs() {
		t.Run(isa, func(t *testing.T) {
			set, err := ForISA(isa)
			if err != nil {
				t.Fatal(err)
			}
			test(t, isa, set[op])
		})
	}
}

func TestISAs(t *testing.T) {
	names := ISAs()
	if names[0] != plain {
		t.Errorf("the first of %q is not %s", names, plain)
	}
	for _, name := range []string{"plain", "avx2", "avx512", "avx512_bf16", "amx", "neon"} {
		set, err := ForISA(name)
		switch {
		case slices.Contains(names, name):
			if err != nil || len(set) != len(Kernels) {
				t.Errorf("%s has %d kernels of %d: %v", name, len(set), len(Kernels), err)
			}
		case err == nil || !strings.Contains(err.Error(), name+" cannot be used on this machine: it has plain"):
			t.Errorf("%s, which is not here: %v", name, err)
		}
	}
	if _, err := ForISA("sse"); err == nil || err.Error() != `unknown instruction set "sse"; it must be one of plain, avx2, avx512, avx512_bf16, amx, neon` {
		t.Error(err)
	}
}

// TestChosen asks processes, since one chooses once.
func TestChosen(t *testing.T) {
	if want := os.Getenv("KRAIT_TEST_CHOSEN"); want != "" {
		_, err := Chosen()
		if got := "none"; err != nil && err.Error() != want || err == nil && want != got {
			t.Errorf("%v, want %s", err, want)
		}
		return
	}
	for name, want := range map[string]string{"": "none", "plain": "none", "AVX2": `KRAIT_CPU: unknown instruction set "AVX2"; it must be one of plain, avx2, avx512, avx512_bf16, amx, neon`} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChosen$")
		cmd.Env = append(os.Environ(), "KRAIT_CPU="+name, "KRAIT_TEST_CHOSEN="+want)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("KRAIT_CPU=%s: %s", name, out)
		}
	}
}

func TestChosenISA(t *testing.T) {
	names := ISAs()
	for value, want := range map[string]string{"": names[len(names)-1], plain: plain} {
		t.Setenv(ISAVariable, value)
		if got, err := ChosenISA(); err != nil || got != want {
			t.Errorf("%s=%s gives %s, %v", ISAVariable, value, got, err)
		}
	}
}

// runAll runs all of a kernel.
func runAll(k kernels.Kernel, c *kernels.Call) {
	k.Prepare(c)
	k.Run(c, 0, k.Units(c))
}

// allocations counts those of a kernel that has its scratch memory.
func allocations(k kernels.Kernel, c *kernels.Call) float64 {
	k.Prepare(c)
	return testing.AllocsPerRun(10, func() {
		if b := k.Before; b != nil {
			runAll(*b, c)
		}
		k.Run(c, 0, k.Units(c))
	})
}

package cuda

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"pgregory.net/rapid"
)

// fixedSeeds are how many seeds are tried for a kernel: 150 do not reach attention_split_4_2 of
// attention_f32.
const fixedSeeds = 300

// idleSeeds is how many seeds in a row may plan no kernel that has not run, until TestOps stops.
const idleSeeds = 100

// until runs a property on what fixed seeds draw until each kernel (module.function) has been
// launched, by whatever test: what is rarely drawn runs all the same. Other seeds are planned only.
// No other test may run meanwhile.
func until(t *testing.T, property func(*rapid.T), kernels ...string) {
	t.Helper()
	goldens.Few(t)
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(kernels), hasRun)
	}
	for seed := uint64(0); len(missing()) > 0; seed++ {
		if seed == fixedSeeds {
			t.Fatalf("none of %d seeds launches %s", seed, missing())
		}
		planOnly = map[string]bool{}
		fixed(t, seed, property)
		plans := planOnly
		planOnly = nil
		if slices.ContainsFunc(missing(), func(k string) bool { return plans[k] }) {
			fixed(t, seed, property)
		}
	}
}

// planOnly takes the launches of devices, which run nothing; tensors are blank, references do not
// run, and comparisons hold; nil: all run.
var planOnly map[string]bool

// hasRun reports whether a kernel has run in this process as a dependent launch, which may do less;
// with KRAIT_TEST_ALL otherwise, too. By default one of its family stands for it.
func hasRun(kernel string) bool {
	launched.Lock()
	defer launched.Unlock()
	return launched.count[kernel] >= some(1, 2) || goldens.Few(nil) && launched.families[family(kernel)] // asDependent
}

// fixed runs a property once, on what the seed draws.
func fixed(t *testing.T, seed uint64, property func(*rapid.T)) {
	t.Helper()
	rng := newRand(seed)
	input := make([]byte, 8<<10)
	for i := 0; i < len(input); i += 8 {
		binary.LittleEndian.PutUint64(input[i:], rng.Uint64())
	}
	rapid.MakeFuzz(property)(t, input)
}

// plansNew reports whether the first call of the case launches a kernel that was not run before.
func plansNew(t *rapid.T, op *graph.Op) bool {
	d, dev := newDraw(t), newPlanner(t)
	d.blank = true
	c := cases[op.Name](d)()
	return runsNew(dev.plan(op, dev.deviceCall(op, &c, map[int]Tensor{}, d.offset)))
}

// addresses is a memory for what is planned only: it has addresses and holds nothing.
type addresses struct{ next uint64 }

// newPlanner is a device whose launches are planned only.
func newPlanner(t fataler) *device { return &device{t: t, mem: new(addresses)} }

func (a *addresses) Alloc(bytes int64) (uint64, error) {
	a.next += 256
	at := a.next
	a.next += uint64(bytes+255) &^ 255
	return at, nil
}

func (*addresses) Write(uint64, []byte) error { return nil }
func (*addresses) Read(uint64, []byte) error  { return nil }

// runsNew reports whether one of the kernels was not run before.
func runsNew(launches []Launch) bool {
	return slices.ContainsFunc(launches, func(l Launch) bool { return !hasRun(l.Module + "." + l.Function) })
}

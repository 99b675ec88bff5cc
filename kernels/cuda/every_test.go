package cuda

import (
	"encoding/binary"
	"testing"

	"github.com/krait-ml/krait/graph"
	"pgregory.net/rapid"
)

// fixedSeeds are how many seeds are tried for a kernel: the 150 that there were did not reach attention_split_4_2 of
// attention_f32.
const fixedSeeds = 300

// TestEveryKernel: whatever the other tests draw, each kernel of each module that an
// operation launches without options is run. Of cases from fixed seeds, those are
// checked that launch one not launched before.
func TestEveryKernel(t *testing.T) {
	for _, op := range graph.Ops() {
		if op.Class != graph.Compute {
			continue
		}
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]bool{}
			for seed := range uint64(fixedSeeds) {
				fresh := false
				fixed(t, seed, func(t *rapid.T) { fresh = plansNew(t, op, seen) })
				if fresh {
					fixed(t, seed, func(t *rapid.T) { checkOp(t, op, Options{}) })
				}
			}
		})
	}
}

// until runs a property on what fixed seeds draw until each kernel (module.function)
// has been launched, by whatever test: what is rarely drawn runs all the same.
func until(t *testing.T, property func(*rapid.T), kernels ...string) {
	t.Helper()
	missing := func() string {
		launched.Lock()
		defer launched.Unlock()
		for _, k := range kernels {
			if launched.count[k] < 2 { // as a dependent launch, and otherwise
				return k
			}
		}
		return ""
	}
	for seed := uint64(0); missing() != ""; seed++ {
		if seed == fixedSeeds {
			t.Fatalf("none of %d seeds launches %s", seed, missing())
		}
		fixed(t, seed, property)
	}
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

// plansNew reports whether the first call of the case launches a kernel that is not
// in seen, and adds those that it launches.
func plansNew(t *rapid.T, op *graph.Op, seen map[string]bool) (fresh bool) {
	d, dev := newDraw(t), newDevice(t)
	c := cases[op.Name](d)()
	for _, l := range dev.plan(op, dev.deviceCall(op, &c, map[int]Tensor{}, d.offset)) {
		name := l.Module + "." + l.Function
		fresh = fresh || !seen[name]
		seen[name] = true
	}
	return fresh
}

package cuda

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// launched counts launches by module and function, and those that were dependent.
var launched = struct {
	sync.Mutex
	count, dependent map[string]int
}{count: map[string]int{}, dependent: map[string]int{}}

// slow are the operations, and tests, whose cases cost most in the interpreter, and how often
// 20 of them are drawn: often enough that each kernel is run. With KRAIT_TEST_ALL it is 100 of
// them, as CI has it.
var slow = map[string]int{
	"attention": 1, "choose": 1, "experts": 1, "ungated_experts": 1, "add_experts": 1, "add_ungated_experts": 1, "norm_router": 2, "sigmoid_router": 1,
	"ssd_scan": 1, "ssd_scan_gated": 1, "selective_scan": 2, "selective_scan_gated": 1, "selective_scan_projected": 1,
	"selective_scan_normed": 1, "selective_scan_unit_normed": 1, "gated_matmul": 2, "norm_gated_matmul": 2,
	"norm_matmul": 2, "norm_matmul_add": 2, "rotary": 2,
	"split": 1, "width": 1,
}

// check draws cases of an operation, 60 but for those that are slow.
func check(t *testing.T, op string, test func(*rapid.T)) {
	t.Helper()
	for range rounds(op) {
		prop.Check(t, test)
	}
}

// checkAgain draws half as many, for tests that compare kernels with themselves: what
// they compute is held against numbers elsewhere.
func checkAgain(t *testing.T, op string, test func(*rapid.T)) {
	t.Helper()
	for range (rounds(op) + 1) / 2 {
		prop.Check(t, test)
	}
}

func rounds(op string) int {
	if n, ok := slow[op]; ok {
		return n
	}
	return 3
}

// TestMain: when all tests have run, each kernel has, and as a dependent launch, too.
func TestMain(m *testing.M) {
	if onDevice == "" {
		prop.Cases(20)
	}
	debug.SetGCPercent(400) // launches allocate, and little of it stays
	code := m.Run()
	given := false
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		given = given || flag.Lookup(name).Value.String() != ""
	}
	if code == 0 && !given {
		all, err := modules()
		if err != nil {
			panic(err)
		}
		for name, module := range all {
			for _, function := range module.Entries() {
				if launched.count[name+"."+function] < 2 { // asDependent
					fmt.Printf("kernel %s of module %s was not run by any test, as a dependent launch and otherwise\n", function, name)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

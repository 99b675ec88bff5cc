package cuda

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// launched counts launches by module and function, and those that were dependent.
var launched = struct {
	sync.Mutex
	count, dependent map[string]int
	families         map[string]bool
}{count: map[string]int{}, dependent: map[string]int{}, families: map[string]bool{}}

// family names a kernel without the format of its module: those of other formats are made of the
// same source.
func family(kernel string) string {
	module, function, _ := strings.Cut(kernel, ".")
	for _, format := range formats() {
		if base, is := strings.CutSuffix(module, "_"+format); is {
			return base + "." + strings.Replace(function, "_"+format, "", 1)
		}
	}
	return kernel
}

var formats = sync.OnceValue(func() []string {
	names := []string{"f32", "f16", "bf16", "e4m3"}
	for _, d := range blockFormats() {
		names = append(names, d.String())
	}
	return names
})

// slow are the operations, and tests, whose cases cost most in the interpreter, and how many CI
// draws; 4 of others. By default it is a fifth of them, with KRAIT_TEST_ALL 100 of each.
var slow = map[string]int{
	"attention": 1, "choose": 2, "experts": 2, "ungated_experts": 2, "add_experts": 2, "add_ungated_experts": 2,
	"ssd_scan": 2, "ssd_scan_gated": 2, "delta_scan": 2, "selective_scan": 3, "selective_scan_gated": 2,
	"selective_scan_projected": 2, "selective_scan_normed": 2, "selective_scan_unit_normed": 2, "gated_matmul": 3,
	"norm_gated_matmul": 3, "tiles": 1, "pieces": 1,
}

// check draws cases of an operation.
func check(t *testing.T, op string, test func(*rapid.T)) {
	t.Helper()
	prop.CheckN(t, cmp.Or(slow[op], 4), test)
}

// some is how much of something long a test runs: all with KRAIT_TEST_ALL, else few.
func some(few, all int) int {
	if goldens.All() {
		return all
	}
	return few
}

// TestMain: when all tests have run, each kernel has, or by default one of each family (hasRun).
func TestMain(m *testing.M) {
	code := m.Run()
	given := false
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		given = given || flag.Lookup(name).Value.String() != ""
	}
	if code == 0 && !given {
		for name := range PTX() {
			module, err := declared(name)
			if err != nil {
				panic(err)
			}
			for _, function := range module.Entries() {
				if !hasRun(name + "." + function) {
					fmt.Printf("kernel %s of module %s was not run by any test\n", function, name)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

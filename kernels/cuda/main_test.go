package cuda

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"pgregory.net/rapid"
)

// launched counts launches by module and function.
var launched = struct {
	sync.Mutex
	count map[string]int
}{count: map[string]int{}}

// slow are the operations whose cases cost most in the interpreter, and how often
// 20 of them are drawn: often enough that each kernel is run.
var slow = map[string]int{"attention": 2, "choose": 2, "experts": 1, "ssd_scan": 2}

// check draws cases of an operation, 100 but for those that are slow.
func check(t *testing.T, op string, test func(*rapid.T)) {
	t.Helper()
	for range rounds(op) {
		rapid.Check(t, test)
	}
}

// checkAgain draws half as many, for tests that compare kernels with themselves: what
// they compute is held against numbers elsewhere.
func checkAgain(t *testing.T, op string, test func(*rapid.T)) {
	t.Helper()
	for range (rounds(op) + 1) / 2 {
		rapid.Check(t, test)
	}
}

func rounds(op string) int {
	if n, ok := slow[op]; ok {
		return n
	}
	return 5
}

// TestMain: when all tests have run, each kernel has.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given && !goldens.All() && onDevice == "" {
		if err := flag.Set("rapid.checks", "20"); err != nil {
			panic(err)
		}
	}
	debug.SetGCPercent(400) // launches allocate, and little of it stays
	code := m.Run()
	if run := flag.Lookup("test.run"); code == 0 && run.Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		all, err := modules()
		if err != nil {
			panic(err)
		}
		for name, module := range all {
			for _, function := range module.Entries() {
				if launched.count[name+"."+function] == 0 {
					fmt.Printf("kernel %s of module %s was not run by any test\n", function, name)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

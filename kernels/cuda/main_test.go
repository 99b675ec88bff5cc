package cuda

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// launched counts launches by function.
var launched = struct {
	sync.Mutex
	count map[string]int
}{count: map[string]int{}}

// TestMain: when all tests have run, each kernel has.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if run := flag.Lookup("test.run"); code == 0 && run.Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		all, err := modules()
		if err != nil {
			panic(err)
		}
		for name, module := range all {
			for _, function := range module.Entries() {
				if launched.count[function] == 0 {
					fmt.Printf("kernel %s of module %s was not run by any test\n", function, name)
					code = 1
				}
			}
		}
	}
	os.Exit(code)
}

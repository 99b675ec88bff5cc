// Package prop gives tests random numbers that are the same in every run, so that a test never
// fails by luck. With KRAIT_TEST_ALL they are new in each run, unless it is "fixed".
package prop

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
	"pgregory.net/rapid"
)

// Seed returns a seed that depends on the test's name alone, or with KRAIT_TEST_ALL a new one. A
// test that fails logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := named(t.Name())
	if anew() {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return seed
}

func anew() bool { return goldens.All() && os.Getenv("KRAIT_TEST_ALL") != "fixed" }

func named(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// calls counts the calls of Check by test. Its lock also guards the flags of rapid.
var calls = struct {
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

// Check runs [rapid.Check] with a seed that depends on the test's name and on how often the test
// has called it. The flag -rapid.seed overrides the seed; with KRAIT_TEST_ALL it is new.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	CheckN(t, 0, property)
}

// CheckN is Check of n draws, by default a fifth of them, unless the flag -rapid.checks or
// KRAIT_TEST_ALL says otherwise; 0 is the package's number.
func CheckN(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	if anew() || chosen() {
		rapid.Check(t, property)
		return
	}
	few := goldens.Few(t)
	calls.Lock()
	was := flag.Lookup("rapid.checks").Value.String()
	if n == 0 {
		n, _ = strconv.Atoi(was)
	}
	if few {
		n = (n + 4) / 5
	}
	if !counted() {
		set("rapid.checks", strconv.Itoa(n))
	}
	set("rapid.seed", strconv.FormatUint(named(nth(t.Name(), calls.of[t.Name()])), 10))
	calls.of[t.Name()]++
	unlock := sync.OnceFunc(func() { // at the first draw, when rapid has read the flags
		set("rapid.checks", was)
		calls.Unlock()
	})
	defer unlock()
	rapid.Check(t, func(r *rapid.T) {
		unlock()
		property(r)
	})
}

// nth names the n-th call of Check in a test.
func nth(test string, n int) string { return fmt.Sprintf("%s, call %d", test, n) }

// chosen reports whether the command line or the environment chose a seed, which is read before
// Check first sets one.
var chosen = sync.OnceValue(func() bool { return flag.Lookup("rapid.seed").Value.String() != "0" })

// Cases sets how many cases a property test of the package draws, unless the flag -rapid.checks or
// KRAIT_TEST_ALL says otherwise. TestMain calls it.
func Cases(n int) {
	flag.Parse()
	if !counted() {
		set("rapid.checks", strconv.Itoa(n))
	}
}

// counted reports whether the command line or the environment says how many cases are drawn, which
// is read before anything sets a number.
var counted = sync.OnceValue(func() bool {
	given := goldens.All()
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	return given
})

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic("BUG: " + err.Error())
	}
}

package prop

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// unseeded matches what draws anew in each run: Check and Seed of this package do not.
var unseeded = regexp.MustCompile(`\brapid\.Check\(|\brand\.(Uint64|Int64|Int|Perm|Float64)\(\)|NewPCG\([^)]*UnixNano`)

// TestSeeds: tests draw by seeds of their names, so that none fails by luck.
func TestSeeds(t *testing.T) {
	list, err := exec.Command("git", "-C", "../..", "ls-files", "*_test.go").Output()
	if err != nil {
		t.Skip("the files are those of git: ", err)
	}
	for _, file := range strings.Fields(string(list)) {
		text, err := os.ReadFile("../../" + file)
		if err != nil || strings.HasPrefix(file, "internal/prop/") {
			continue // one that is removed
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if unseeded.Match(line) {
				t.Errorf("%s:%d draws by a seed of its own: use internal/prop: %s", file, i+1, bytes.TrimSpace(line))
			}
		}
	}
}

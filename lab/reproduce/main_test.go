package reproduce

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // hundreds of graphs are compiled, and little of them stays
	os.Exit(m.Run())
}

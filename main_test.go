package krait

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

func TestMain(m *testing.M) {
	prop.Cases(4)           // of every family
	debug.SetGCPercent(400) // hundreds of models are opened, and little of them stays
	os.Exit(m.Run())
}

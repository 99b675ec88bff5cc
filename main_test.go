package krait

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

func TestMain(m *testing.M) {
	goldens.Checks("4")     // of every family
	debug.SetGCPercent(400) // hundreds of models are opened, and little of them stays
	os.Exit(m.Run())
}

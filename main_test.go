package krait

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // hundreds of models are opened, and little of them stays
	os.Exit(m.Run())
}

package krait

import (
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

func TestMain(m *testing.M) {
	prop.Cases(4) // of every family
	os.Exit(m.Run())
}

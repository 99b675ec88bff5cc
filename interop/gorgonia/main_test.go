package gorgonia_test

import (
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

func TestMain(m *testing.M) {
	prop.Cases(15) // of every operation
	os.Exit(m.Run())
}

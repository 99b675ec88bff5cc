package exec_test

import (
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
)

func TestMain(m *testing.M) {
	prop.Cases(6) // of every operation, on every index, for each device
	os.Exit(m.Run())
}

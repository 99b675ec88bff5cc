package exec_test

import (
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

func TestMain(m *testing.M) {
	goldens.Checks("20") // of every operation, on every index, for each device
	os.Exit(m.Run())
}

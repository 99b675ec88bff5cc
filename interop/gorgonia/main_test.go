package gorgonia_test

import (
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

func TestMain(m *testing.M) {
	goldens.Checks("30") // of every operation
	os.Exit(m.Run())
}

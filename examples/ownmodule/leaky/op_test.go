package leaky

import (
	"testing"

	"github.com/krait-ml/krait/lab/optest"
)

func TestOp(t *testing.T) { optest.Check(t, Op) }

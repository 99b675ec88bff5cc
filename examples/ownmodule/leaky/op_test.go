package leaky

import (
	"testing"

	"github.com/krait-ml/krait/optest"
)

func TestOp(t *testing.T) { optest.Check(t, Op) }

// Package thrift makes tests that import it take less of the processor.
package thrift

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/krait-ml/krait/internal/spin"
)

func init() {
	if os.Getenv("GOGC") == "" { // tests of memory set it
		debug.SetGCPercent(400) // models, schedules and launches are made by the hundred, and little of them stays
	}
	spin.Patience = 20 * time.Microsecond // packages are tested beside each other, and models are small
}

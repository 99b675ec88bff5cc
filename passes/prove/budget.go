package prove

import (
	"fmt"
	"time"
)

// Options bound the search for the minimum, whose work can grow with the number
// of ways in which values that are in use at the same time can be held. A search
// that comes to an end of either bound leaves the minimum not established.
type Options struct {
	Time   time.Duration // of all searches together; 0: 30 seconds
	Memory int64         // bytes that a search may remember; 0: 1 GiB
}

// budget is what is left of the bounds.
type budget struct {
	Options
	end   time.Time
	spent string // which bound was reached
}

func newBudget(o Options) *budget {
	if o.Time == 0 {
		o.Time = 30 * time.Second
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	return &budget{Options: o, end: time.Now().Add(o.Time)}
}

// allows reports whether a search may continue that remembers a number of states of a
// number of values.
func (b *budget) allows(states, values int) bool {
	const each, perValue = 160, 40 // bytes of a state, measured
	switch {
	case b.spent != "":
	case int64(states)*int64(each+perValue*values) > b.Memory:
		b.spent = fmt.Sprintf("the search needs more than %s", mebibytes(b.Memory))
	case time.Now().After(b.end):
		b.spent = fmt.Sprintf("the search takes more than %s", b.Time)
	}
	return b.spent == ""
}

// mebibytes writes 1024 MiB, or 1 KiB.
func mebibytes(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

package ptx

import "fmt"

// A FaultKind is a class of error in a kernel.
type FaultKind int

const (
	// OutOfBounds: an access outside of every allocation, of shared or local
	// memory, of the parameters or of the constants.
	OutOfBounds FaultKind = iota + 1
	// Misaligned: an address that is no multiple of the access's size.
	Misaligned
	// Unwritten: a load of bytes that were never written, or that a cp.async
	// in flight is about to write.
	Unwritten
	// SharedRace: two threads of a block touch a byte of shared memory, one
	// writes, and nothing orders them.
	SharedRace
	// GlobalRace: the same in global memory, of two blocks or within one.
	GlobalRace
	// ReadOnly: a load of data that is said to stay the same (.nc, ldu), of bytes
	// that the launch has written before: the cache that it goes through may have
	// the old ones.
	ReadOnly
	// DivergentBarrier: a barrier that not all threads reach, or not at the
	// same instruction.
	DivergentBarrier
	// Deadlock: threads wait for threads that will never come.
	Deadlock
	// Trap: the kernel has executed trap or brkpt, or called __assertfail.
	Trap
	// BadLaunch: the launch's sizes are not what the kernel or the device
	// takes. Line is 0.
	BadLaunch
	// TooLong: a thread has run more instructions than the launch allows.
	TooLong
	// Undefined: an instruction whose result PTX leaves undefined, such as a
	// division by zero or a shuffle from a lane that does not take part.
	Undefined
	// NotAwaited: in a launch that overlaps with the one before, a thread touches global
	// memory, or ends, before it has waited for that by griddepcontrol.wait, or loads by .nc
	// what a launch has written.
	NotAwaited
	// Waits: the launch waits for another device. Its writes are undone: it may run again when
	// that device has continued. See [Peers].
	Waits
)

var faultKindNames = [...]string{"", "out of bounds", "misaligned", "unwritten", "shared race", "global race", "read-only",
	"divergent barrier", "deadlock", "trap", "bad launch", "too long", "undefined", "not awaited", "waits"}

func (k FaultKind) String() string {
	if k <= 0 || int(k) >= len(faultKindNames) {
		return fmt.Sprintf("FaultKind(%d)", int(k))
	}
	return faultKindNames[k]
}

// Fault is what went wrong in a kernel: the first fault in the order in which
// the interpreter runs threads, which Launch.Seed fixes.
type Fault struct {
	Kernel        string
	Line          int    // of the PTX, from 1; 0 if the launch itself is wrong
	Source        string // the text of that line
	Block, Thread [3]int
	Kind          FaultKind
	Text          string // what is wrong, without the place
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("kernel %s: %s", f.Kernel, f.Text)
	}
	return fmt.Sprintf("kernel %s, PTX line %d (%s), block (%d,%d,%d) thread (%d,%d,%d): %s", f.Kernel, f.Line, f.Source,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2], f.Text)
}

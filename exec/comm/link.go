package comm

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"
)

// Link carries messages between processes, which are numbered by their ranks. Packages
// tcp and mpi have one each; what processes say to each other is above it, and the same.
type Link interface {
	// Rank is that of this process, of so many.
	Rank() int
	Ranks() int
	// Start begins to receive. Deliver is called with what comes, of each sender in the
	// order in which it sent, by one goroutine per sender at most; what it is given is its own. Lost is called when nothing
	// comes from a rank any more, with the reason.
	Start(deliver func(from int, m Message), lost func(rank int, err error))
	// Send sends a message, and does not wait for it. The message is the link's from then on.
	Send(to int, m Message)
	// Close sends what there is to be sent and ends the link, when the others do where that is
	// how it ends; within so long where all has failed.
	Close(within time.Duration, failed bool) error
}

// Message is a header and what it carries:
//
//	0  its length, with the header
//	4  what it is
//	6  of which group
//	8  of which step, or who waits for whom
//	16 its number in the step
type Message []byte

// Header is the length of a message that carries nothing.
const Header = 24

// MaxMessage is the length that no message has.
const MaxMessage = 1 << 31

// NewMessage makes a message that carries so many bytes, for who reads one from a wire.
func NewMessage(carries int) Message {
	n := Header + carries
	class := bits.Len(uint(n - 1))
	var m Message
	if class < len(spare) {
		if p, ok := spare[class].Get().(*[]byte); ok {
			m = Message((*p)[:n])
		}
	}
	if m == nil {
		m = make(Message, n, 1<<class)
	}
	clear(m[:Header])
	binary.LittleEndian.PutUint32(m, uint32(n))
	return m
}

// spare are messages that were read or sent, by the logarithm of their capacity.
var spare [28]sync.Pool

// Recycle lets the memory of a message be used for others.
func Recycle(m Message) {
	if class := bits.Len(uint(cap(m) - 1)); class < len(spare) && cap(m) == 1<<class {
		b := []byte(m)
		spare[class].Put(&b)
	}
}

// kind says what a message is.
type kind uint8

const (
	beat  kind = iota + 1 // who sends it lives; step: for whom it waits
	fatal                 // everything ends, with an error
	bye                   // who sends it leaves, and all is well
	stop                  // a step ends, with an error
	piece                 // part of a collective
	word                  // between engines, in order
)

func newMessage(k kind, group uint16, carries int) Message {
	m := NewMessage(carries)
	m[4] = byte(k)
	binary.LittleEndian.PutUint16(m[6:], group)
	return m
}

func textMessage(k kind, group uint16, text string) Message {
	m := newMessage(k, group, len(text))
	copy(m.carried(), text)
	return m
}

func (m Message) kind() kind      { return kind(m[4]) }
func (m Message) group() uint16   { return binary.LittleEndian.Uint16(m[6:]) }
func (m Message) step() int64     { return int64(binary.LittleEndian.Uint64(m[8:])) }
func (m Message) setStep(n int64) { binary.LittleEndian.PutUint64(m[8:], uint64(n)) }
func (m Message) seq() uint32     { return binary.LittleEndian.Uint32(m[16:]) }
func (m Message) setSeq(n uint32) { binary.LittleEndian.PutUint32(m[16:], n) }
func (m Message) carried() []byte { return m[Header:] }

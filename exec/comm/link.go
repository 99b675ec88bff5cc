package comm

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"
)

// Link carries messages between processes, which are numbered by their ranks. Packages tcp and mpi
// have one each.
type Link interface {
	// Rank is the rank of this process, below Ranks.
	Rank() int
	Ranks() int
	// Start begins to receive. It calls deliver with each message, in the order of its sender and
	// by at most one goroutine per sender; deliver owns the message. It calls lost with the reason
	// when a rank's connection has ended.
	Start(deliver func(from int, m Message), lost func(rank int, err error))
	// Send queues a message, which the link owns from then on.
	Send(to int, m Message)
	// Close sends queued messages and ends the link, with the other processes if the link ends
	// together; within a duration if the processes have failed.
	Close(within time.Duration, failed bool) error
}

// Message is a header and a payload:
//
//	0  length, with the header
//	4  kind
//	6  group
//	8  step; of a heartbeat 1 + the rank that the sender waits for
//	16 number of the message in the step, from the sender to the receiver
type Message []byte

// Header is the length of a message without a payload.
const Header = 24

// MaxMessage bounds the length of messages.
const MaxMessage = 1 << 31

// NewMessage makes a message with a payload of some bytes.
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

// spare has recycled messages, by the logarithm of their capacity.
var spare [28]sync.Pool

// Recycle gives the memory of a message to later ones.
func Recycle(m Message) {
	if class := bits.Len(uint(cap(m) - 1)); class < len(spare) && cap(m) == 1<<class {
		b := []byte(m)
		spare[class].Put(&b)
	}
}

// kind is the kind of a message.
type kind uint8

const (
	beat  kind = iota + 1 // heartbeat
	fatal                 // error that ends all processes
	bye                   // the sender leaves without an error
	stop                  // error that ends a step
	piece                 // part of a collective
	word                  // message between engines
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

package exec

import (
	"encoding/binary"
	"errors"
)

// sentence is what engines in several processes say to each other: what is to be done,
// and with what.
type sentence struct {
	order order
	nums  []int64
	data  [][]byte
}

// order is what rank 0 asks the others to do.
type order byte

const (
	orderStep order = iota + 1
	orderKeepSlots
	orderClear
	orderCopy
	orderRead
	orderWrite
	orderPages
	orderCopyRows
	orderReadRows
	orderWriteRows
	orderReadPage
	orderWritePage
	orderClose
)

func say(o order, nums ...int64) *sentence { return &sentence{order: o, nums: nums} }

func (s *sentence) num(n ...int64) { s.nums = append(s.nums, n...) }

// reader takes the numbers of a sentence in order. It is bad where there were none left.
type reader struct {
	nums []int64
	bad  bool
}

func (t *reader) next() int64 {
	if len(t.nums) == 0 {
		t.bad = true
		return 0
	}
	n := t.nums[0]
	t.nums = t.nums[1:]
	return n
}

// count is a number of things that follow, each of one number at least.
func (t *reader) count() int {
	n := t.next()
	if n < 0 || n > int64(len(t.nums)) {
		t.bad = true
		return 0
	}
	return int(n)
}

// write appends the sentence as bytes.
func (s *sentence) write(b []byte) []byte {
	b = append(b, byte(s.order))
	b = binary.AppendUvarint(b, uint64(len(s.nums)))
	for _, n := range s.nums {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(s.data)))
	for _, d := range s.data {
		b = binary.AppendUvarint(b, uint64(len(d)))
		b = append(b, d...)
	}
	return b
}

var errSentence = errors.New("what another process says is not understood: it runs another version")

// read takes a sentence from bytes, in which its data stays.
func (s *sentence) read(b []byte) error {
	if len(b) == 0 {
		return errSentence
	}
	s.order, b = order(b[0]), b[1:]
	n, b, err := readCount(b)
	if err != nil {
		return err
	}
	s.nums = s.nums[:0]
	for range n {
		v, used := binary.Varint(b)
		if used <= 0 {
			return errSentence
		}
		s.nums, b = append(s.nums, v), b[used:]
	}
	if n, b, err = readCount(b); err != nil {
		return err
	}
	s.data = s.data[:0]
	for range n {
		var size int
		if size, b, err = readCount(b); err != nil {
			return err
		}
		s.data, b = append(s.data, b[:size:size]), b[size:]
	}
	if len(b) > 0 {
		return errSentence
	}
	return nil
}

// readCount reads how many bytes, or things of a byte at least, follow.
func readCount(b []byte) (int, []byte, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return 0, nil, errSentence
	}
	return int(n), b[used:], nil
}

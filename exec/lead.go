package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// lead is the machine of an engine whose ranks are in several processes: it is in that of
// rank 0, and lets the others do what it does ([Engine.Follow]). So requests, slots, pages
// and what is kept are known in one place, and no process can come to another
// conclusion.
type lead struct {
	own    Machine // of rank 0
	group  *comm.Group
	common []bool // by input: ranks other than the one that gives outputs read it
	words  sentence
	bytes  []byte
}

// all does something on all ranks, and returns the error of this one, or else of another.
func (l *lead) all(s *sentence, own func() error) error {
	l.bytes = s.write(l.bytes[:0])
	for r := 1; r < l.group.Ranks(); r++ {
		l.group.Send(r, l.bytes)
	}
	err := own()
	for r := 1; r < l.group.Ranks(); r++ {
		_, e := l.answer(r)
		err = cmp.Or(err, e)
	}
	return cmp.Or(l.group.Processes().Err(), err)
}

// one lets another rank do something.
func (l *lead) one(rank int, s *sentence) ([]byte, error) {
	l.bytes = s.write(l.bytes[:0])
	l.group.Send(rank, l.bytes)
	return l.answer(rank)
}

// answer is what a rank says when it has done something.
func (l *lead) answer(rank int) ([]byte, error) {
	text, err := l.group.Receive(rank, true)
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0:
		return nil, fmt.Errorf("rank %d: %w", rank, errSentence)
	case text[0] != wellDone:
		return nil, errors.New(string(text[1:]))
	}
	return text[1:], nil
}

// What an answer begins with.
const (
	wellDone byte = iota
	failed        // and then how
)

// Step runs a batch on all ranks. The outputs are those of rank 0.
func (l *lead) Step(ctx context.Context, w *Work) (out []kernels.Tensor, err error) {
	if err := ctx.Err(); err != nil { // or else the others would have begun
		return nil, fmt.Errorf("stopped before the step: %w", err)
	}
	s := &l.words
	s.order, s.nums, s.data = orderStep, s.nums[:0], s.data[:0]
	s.batch(w)
	for i, read := range l.common {
		if read {
			s.data = append(s.data, w.Inputs[i].Data)
		}
	}
	err = l.all(s, func() (e error) {
		out, e = l.own.Step(ctx, w)
		return e
	})
	return out, err
}

// batch says what a batch is, but for its inputs.
func (s *sentence) batch(w *Work) {
	s.num(w.Tokens, w.Seqs, w.Rows, w.Cached, w.Pairs, w.Largest)
	for _, is := range w.Wanted {
		n := int64(0)
		if is {
			n = 1
		}
		s.num(n)
	}
	s.num(int64(len(w.Ends)))
	for _, end := range w.Ends {
		s.num(int64(end))
	}
	s.num(int64(len(w.Pages)))
	for _, list := range w.Pages {
		s.num(int64(len(list)))
		for _, page := range list {
			s.num(int64(page))
		}
	}
}

// takeBatch is the other end of batch.
func (t *reader) takeBatch(w *Work) {
	w.Sizes = graph.Sizes{Tokens: t.next(), Seqs: t.next(), Rows: t.next(), Cached: t.next(), Pairs: t.next(), Largest: t.next()}
	for i := range w.Wanted {
		w.Wanted[i] = t.next() != 0
	}
	w.Ends = w.Ends[:0]
	for range t.count() {
		w.Ends = append(w.Ends, int(t.next()))
	}
	n := t.count()
	w.Pages = append(w.Pages[:cap(w.Pages)], make([][]int32, max(0, n-cap(w.Pages)))...)[:n]
	for i := range w.Pages {
		w.Pages[i] = w.Pages[i][:0]
		for range t.count() {
			w.Pages[i] = append(w.Pages[i], int32(t.next()))
		}
	}
}

func (l *lead) KeepSlots(n int) error {
	return l.all(say(orderKeepSlots, int64(n)), func() error { return l.own.KeepSlots(n) })
}

func (l *lead) Clear(slot int) error {
	return l.all(say(orderClear, int64(slot)), func() error { return l.own.Clear(slot) })
}

func (l *lead) Copy(from, to int) error {
	return l.all(say(orderCopy, int64(from), int64(to)), func() error { return l.own.Copy(from, to) })
}

func (l *lead) Pages(n int) error {
	return l.all(say(orderPages, int64(n)), func() error { return l.own.Pages(n) })
}

func (l *lead) CopyRows(from Rows, page int32) error {
	s := say(orderCopyRows, int64(page))
	s.rows([]Rows{from})
	return l.all(s, func() error { return l.own.CopyRows(from, page) })
}

func (l *lead) Read(rank, slot int, at int64, to []byte) error {
	if rank == 0 {
		return l.own.Read(rank, slot, at, to)
	}
	return l.fetch(rank, say(orderRead, int64(slot), at, int64(len(to))), to)
}

func (l *lead) Write(rank, slot int, at int64, from []byte) error {
	if rank == 0 {
		return l.own.Write(rank, slot, at, from)
	}
	s := say(orderWrite, int64(slot), at)
	s.data = append(s.data, from)
	_, err := l.one(rank, s)
	return err
}

func (l *lead) ReadRows(rank, buffer int, rows []Rows, to []byte) error {
	if rank == 0 {
		return l.own.ReadRows(rank, buffer, rows, to)
	}
	s := say(orderReadRows, int64(buffer), int64(len(to)))
	s.rows(rows)
	return l.fetch(rank, s, to)
}

func (l *lead) WriteRows(rank, buffer int, rows []Rows, from []byte) error {
	if rank == 0 {
		return l.own.WriteRows(rank, buffer, rows, from)
	}
	s := say(orderWriteRows, int64(buffer))
	s.rows(rows)
	s.data = append(s.data, from)
	_, err := l.one(rank, s)
	return err
}

func (l *lead) ReadPage(rank int, page int32, at int64, to []byte) error {
	if rank == 0 {
		return l.own.ReadPage(rank, page, at, to)
	}
	return l.fetch(rank, say(orderReadPage, int64(page), at, int64(len(to))), to)
}

func (l *lead) WritePage(rank int, page int32, at int64, from []byte) error {
	if rank == 0 {
		return l.own.WritePage(rank, page, at, from)
	}
	s := say(orderWritePage, int64(page), at)
	s.data = append(s.data, from)
	_, err := l.one(rank, s)
	return err
}

// Collectives counts those of rank 0, which are those of all.
func (l *lead) Collectives() []CollectiveCount { return l.own.Collectives() }

func (l *lead) ResetCounts() { l.own.ResetCounts() }

func (l *lead) Exchanges() string { return l.own.Exchanges() }

// fetch is one whose answer has bytes.
func (l *lead) fetch(rank int, s *sentence, to []byte) error {
	data, err := l.one(rank, s)
	if err == nil && copy(to, data) != len(to) {
		err = fmt.Errorf("rank %d: %w", rank, errSentence)
	}
	return err
}

func (s *sentence) rows(list []Rows) {
	s.num(int64(len(list)))
	for _, r := range list {
		s.num(int64(r.Page), int64(r.First), int64(r.N))
	}
}

func (t *reader) rows() (list []Rows) {
	for range t.count() {
		list = append(list, Rows{int32(t.next()), int(t.next()), int(t.next())})
	}
	return list
}

// Close ends the machine on all ranks, unless all have failed: then they know.
func (l *lead) Close() {
	l.bytes = say(orderClose).write(l.bytes[:0])
	for r := 1; r < l.group.Ranks() && l.group.Processes().Err() == nil; r++ {
		l.group.Send(r, l.bytes)
	}
	l.own.Close()
}

package cpu

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/memory"
	"github.com/krait-ml/krait/lowering"
)

// loadChunk is the number of bytes of weights that are read at once.
const loadChunk = 8 << 20

// load touches the weights of all ranks in their mapped file, so that they are read now, in
// parallel and in order, and not a page at a time by the first batch. It leaves weights that do not
// fit in memory.
func (m *machine) load(workers int, tell func(done, total int64)) error {
	var list [][]byte
	total := int64(0)
	for _, r := range m.ranks {
		for _, w := range r.weights() {
			total += int64(len(w))
			list = slices.AppendSeq(list, slices.Chunk(w, loadChunk))
		}
	}
	if all := memory.Total(); all > 0 && total > all/10*9 {
		return nil
	}
	l := &loader{list: list, total: total, tell: tell}
	var all sync.WaitGroup
	for range min(workers, len(list)) {
		all.Go(l.work)
	}
	all.Wait()
	return l.err
}

// weights are the rank's.
func (r *rank) weights() (list [][]byte) {
	for i, b := range r.s.Buffers {
		if b.Space == lowering.Param {
			list = append(list, r.memory[i])
		}
	}
	return list
}

// loader reads weights into memory.
type loader struct {
	list  [][]byte
	next  atomic.Int64
	total int64
	tell  func(done, total int64) // nil: not called

	mu   sync.Mutex
	done int64
	err  error
}

func (l *loader) work() {
	debug.SetPanicOnFault(true) // see files.Guard
	defer func() {
		if p := recover(); p != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = files.Recovered(p)
		}
	}()
	for {
		i := int(l.next.Add(1)) - 1
		if i >= len(l.list) {
			return
		}
		touch(l.list[i])
		l.add(len(l.list[i]))
	}
}

func (l *loader) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done += int64(n); l.tell != nil {
		l.tell(l.done, l.total)
	}
}

// pageBytes is the smallest page that systems have.
const pageBytes = 4 << 10

// touch reads a byte of every page, so that all are in memory.
func touch(data []byte) {
	prefetch(data)
	sum := byte(0)
	for at := 0; at < len(data); at += pageBytes {
		sum += data[at]
	}
	touched.Store(uint32(sum))
}

var touched atomic.Uint32 // the reads are for something

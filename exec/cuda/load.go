package cuda

import (
	"slices"
	"sync"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// stagingBytes is the size of each of the two pinned buffers that weights go
// through: one is filled while the other is copied.
const stagingBytes = 16 << 20

// loader copies weights to a GPU.
type loader struct {
	gpu      *gpu
	stream   driver.Stream
	buffers  [2][]byte
	free     [2]driver.Event // when a buffer has been copied
	next     int
	progress *progress
}

func newLoader(g *gpu, p *progress) (*loader, error) {
	l := &loader{gpu: g, progress: p}
	var err error
	if l.stream, err = g.ctx.Stream(); err != nil {
		return nil, err
	}
	for i := range l.buffers {
		if l.buffers[i], err = g.ctx.AllocHost(min(stagingBytes, max(p.total, 1))); err != nil {
			l.close()
			return nil, err
		}
		if l.free[i], err = g.ctx.Event(false); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// copy starts the copy of data to the device.
func (l *loader) copy(to driver.Ptr, data []byte) error {
	for len(data) > 0 {
		i := l.next
		l.next = 1 - i
		if err := l.free[i].Synchronize(); err != nil {
			return err
		}
		n := copy(l.buffers[i], data)
		if err := l.stream.CopyIn(to, l.buffers[i][:n]); err != nil {
			return err
		}
		if err := l.stream.Record(l.free[i]); err != nil {
			return err
		}
		l.progress.add(int64(n))
		to += driver.Ptr(n)
		data = data[n:]
	}
	return nil
}

// linesBytes is about how many bytes of lines are laid in planes at a time.
const linesBytes = 1 << 20

// copyLines starts the copy of lines in blocks, which are laid in planes.
func (l *loader) copyLines(to driver.Ptr, data []byte, b *graph.Blocks) error {
	size, laid := b.Bytes(1), kernels.LineBytes(b)
	if size == 0 {
		return nil
	}
	var lines []byte
	for ; len(data) > 0; data = data[size:] {
		lines = slices.Grow(lines, laid)[:len(lines)+laid]
		kernels.PutLine(lines[len(lines)-laid:], data[:size], b)
		if len(lines) < linesBytes && len(data) > size {
			continue
		}
		if err := l.copy(to, lines); err != nil {
			return err
		}
		to, lines = to+driver.Ptr(len(lines)), lines[:0]
	}
	return nil
}

// wait returns when all copies are done.
func (l *loader) wait() error { return l.stream.Synchronize() }

func (l *loader) close() {
	_ = l.stream.Synchronize() // wait has returned the error
	for i := range l.buffers {
		if l.buffers[i] != nil {
			_ = l.gpu.ctx.ReleaseHost(l.buffers[i])
		}
		if l.free[i] != nil {
			_ = l.free[i].Close()
		}
	}
	_ = l.stream.Close()
}

// progress counts bytes of weights over all GPUs.
type progress struct {
	mu          sync.Mutex
	done, total int64
	tell        func(done, total int64)
}

func newProgress(ranks []*rank, tell func(done, total int64)) *progress {
	p := &progress{tell: tell}
	for _, r := range ranks {
		for i := range r.s.Buffers {
			if b := &r.s.Buffers[i]; b.Space == lowering.Param {
				p.total += paramBytes(r.s, b)
			}
		}
	}
	return p
}

func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done += n; p.tell != nil {
		p.tell(p.done, p.total)
	}
}

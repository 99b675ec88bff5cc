package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// program is random work on a few streams and words of memory, each operation
// reading one word and writing one.
type program struct {
	streams, words int
	ops            []operation
	waits          []wait // that order all conflicts
}

// operation sets word dst to value, or to word src plus value.
type operation struct {
	stream, dst, src int // src -1: none
	value            uint32
	kind             int // which call does it: see enqueue
}

// wait lets operation after wait for operation before, on another stream.
type wait struct{ before, after int }

func (o operation) String() string {
	if o.src < 0 {
		return fmt.Sprintf("stream %d: w%d = %d", o.stream, o.dst, o.value)
	}
	return fmt.Sprintf("stream %d: w%d = w%d + %d", o.stream, o.dst, o.src, o.value)
}

func (p *program) String() string {
	var b strings.Builder
	for i, o := range p.ops {
		for _, w := range p.waits {
			if w.after == i {
				fmt.Fprintf(&b, "   wait for %d\n", w.before)
			}
		}
		fmt.Fprintf(&b, "%d: %v\n", i, o)
	}
	return b.String()
}

// drawProgram draws a program that reads only what it has written, with the
// waits that it needs and no others.
func drawProgram(t *rapid.T) *program {
	p := &program{streams: rapid.IntRange(2, 3).Draw(t, "streams"), words: rapid.IntRange(2, 4).Draw(t, "words")}
	var written []int
	for i := range rapid.IntRange(4, 14).Draw(t, "length") {
		o := operation{stream: rapid.IntRange(0, p.streams-1).Draw(t, "stream"), dst: rapid.IntRange(0, p.words-1).Draw(t, "dst"), src: -1, value: uint32(1) << i}
		if len(written) > 0 && rapid.Bool().Draw(t, "reads") {
			o.src = rapid.SampledFrom(written).Draw(t, "src")
			if o.kind = rapid.IntRange(0, 1).Draw(t, "kind"); o.src == o.dst {
				o.kind = 0 // a copy must not overlap
			}
		} else {
			o.kind = rapid.IntRange(0, 2).Draw(t, "kind")
		}
		if o.src >= 0 && o.kind == 1 {
			o.value = 0 // a copy
		}
		if !slices.Contains(written, o.dst) {
			written = append(written, o.dst)
		}
		p.ops = append(p.ops, o)
		for before := i - 1; before >= 0; before-- {
			if conflict(p.ops[before], o) && !p.reach(before)[i] {
				p.waits = append(p.waits, wait{before, i})
			}
		}
	}
	return p
}

// conflict says whether two operations must keep their order.
func conflict(a, b operation) bool { return a.dst == b.dst || a.dst == b.src || a.src == b.dst }

// reach marks the operations that come after one for sure.
func (p *program) reach(from int) []bool {
	after := make([]bool, len(p.ops))
	after[from] = true
	for i := from + 1; i < len(p.ops); i++ {
		for j := range i {
			if after[j] && (p.ops[i].stream == p.ops[j].stream || slices.Contains(p.waits, wait{j, i})) {
				after[i] = true
			}
		}
	}
	return after
}

// result runs operations one after the other; nil stands for a fault, as memory
// never written may be copied, but neither computed with nor read.
func (p *program) result(order []int) []uint32 {
	words, known := make([]uint32, p.words), make([]bool, p.words)
	for _, i := range order {
		switch o := p.ops[i]; {
		case o.src < 0:
			words[o.dst], known[o.dst] = o.value, true
		case known[o.src] || o.kind == 1:
			words[o.dst], known[o.dst] = words[o.src]+o.value, known[o.src]
		default:
			return nil
		}
	}
	for _, o := range p.ops {
		if !known[o.dst] {
			return nil
		}
	}
	return words
}

// without removes a wait.
func (p *program) without(i int) *program {
	return &program{streams: p.streams, words: p.words, ops: p.ops, waits: slices.Delete(slices.Clone(p.waits), i, i+1)}
}

// late is the order in which a stream comes as late as it may, and of the
// others the first, or the last, as early.
func (p *program) late(stream int, first bool) (order []int) {
	rank := func(i int) int {
		switch s := p.ops[i].stream; {
		case s == stream:
			return len(p.ops)
		case first:
			return s
		default:
			return -s
		}
	}
	for len(order) < len(p.ops) {
		next := -1
		for j := range p.ops {
			if p.ready(j, order) && (next < 0 || rank(j) < rank(next)) {
				next = j
			}
		}
		order = append(order, next)
	}
	return order
}

// ready says whether an operation may run after those of an order.
func (p *program) ready(i int, order []int) bool {
	if slices.Contains(order, i) {
		return false
	}
	for j := range i {
		if (p.ops[j].stream == p.ops[i].stream || slices.Contains(p.waits, wait{j, i})) && !slices.Contains(order, j) {
			return false
		}
	}
	return true
}

// order is that of the program.
func (p *program) order() []int {
	all := make([]int, len(p.ops))
	for i := range all {
		all[i] = i
	}
	return all
}

// run runs the program on the simulator, as it is or captured in a graph.
func (p *program) run(t *testing.T, seed uint64, captured bool) ([]uint32, error) {
	d := New(Options{Seed: seed, Memory: 1 << 20})
	v := drivertest.Open(t, d, 0)
	base, err := v.Alloc(int64(4 * p.words))
	v.Must(err)
	host, err := v.AllocHost(int64(4 * len(p.ops)))
	v.Must(err)
	streams, done := make([]driver.Stream, p.streams), make([]driver.Event, len(p.ops))
	for i := range streams {
		streams[i], _ = v.Stream()
	}
	for i := range done {
		done[i], _ = v.Event(false)
	}
	word := func(i int) driver.Ptr { return base + driver.Ptr(4*i) }
	if captured {
		p.fork(v, streams)
	}
	for i, o := range p.ops {
		s := streams[o.stream]
		for _, w := range p.waits {
			if w.after == i {
				v.Must(s.Wait(done[w.before]))
			}
		}
		switch {
		case o.src >= 0 && o.kind == 0:
			v.Must(v.Add(s, word(o.dst), word(o.src), o.value, 1))
		case o.src >= 0:
			v.Must(s.Copy(word(o.dst), word(o.src), 4))
		case o.kind == 0:
			v.Must(v.Store(s, word(o.dst), o.value, 1))
		case o.kind == 1 && !captured:
			v.Must(s.CopyIn(word(o.dst), drivertest.Words(o.value)))
		default:
			copy(host[4*i:], drivertest.Words(o.value))
			v.Must(s.CopyIn(word(o.dst), host[4*i:4*i+4]))
		}
		v.Must(s.Record(done[i]))
	}
	if captured {
		g := p.join(v, streams)
		v.Must(g.Launch(streams[0]))
	}
	if err := v.Synchronize(); err != nil {
		return nil, err
	}
	return p.read(v, streams[0], base)
}

// fork begins a capture in the first stream and takes the others in.
func (p *program) fork(v *drivertest.Device, streams []driver.Stream) {
	start := v.NewEvent(false)
	v.Must(streams[0].BeginCapture())
	v.Must(streams[0].Record(start))
	for _, s := range streams[1:] {
		v.Must(s.Wait(start))
	}
}

func (p *program) join(v *drivertest.Device, streams []driver.Stream) driver.Graph {
	for _, s := range streams[1:] {
		end := v.NewEvent(false)
		v.Must(s.Record(end))
		v.Must(streams[0].Wait(end))
	}
	g, err := streams[0].EndCapture()
	v.Must(err)
	return g
}

// read reads the words that the program writes; the others are 0.
func (p *program) read(v *drivertest.Device, s driver.Stream, base driver.Ptr) ([]uint32, error) {
	words := make([]uint32, p.words)
	for _, o := range p.ops {
		b := make([]byte, 4)
		if err := s.CopyOut(b, base+driver.Ptr(4*o.dst)); err != nil {
			return nil, err
		}
		words[o.dst] = uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	return words, nil
}

// TestPrograms: with the waits that it needs, a program gives under every seed
// what it gives in order.
func TestPrograms(t *testing.T) {
	prop.Check(t, func(r *rapid.T) {
		p := drawProgram(r)
		want := p.result(p.order())
		for seed := range uint64(8) {
			got, err := p.run(t, seed, seed%2 == 1)
			if err != nil || !slices.Equal(got, want) {
				r.Fatalf("seed %d gives %d, %v; want %d:\n%v", seed, got, err, want, p)
			}
		}
	})
}

// TestMissingWaits: a wait that is missing is found within 20 seeds if the
// result changes when the stream that is not waited for is late.
func TestMissingWaits(t *testing.T) {
	worst := 0
	prop.Check(t, func(r *rapid.T) {
		p := drawProgram(r)
		if len(p.waits) == 0 {
			r.Skip("no waits")
		}
		want := p.result(p.order())
		w := rapid.IntRange(0, len(p.waits)-1).Draw(r, "wait")
		q, stream := p.without(w), p.ops[p.waits[w].before].stream
		if slices.Equal(q.result(q.late(stream, true)), want) || slices.Equal(q.result(q.late(stream, false)), want) {
			r.Skip("the wait does not show")
		}
		captured := rapid.Bool().Draw(r, "captured")
		for seed := range uint64(20) {
			got, err := q.run(t, seed, captured)
			if err != nil && !errors.Is(err, driver.ErrKernelFault) {
				r.Fatal(err)
			}
			if err != nil || !slices.Equal(got, want) {
				worst = max(worst, int(seed)+1)
				return
			}
		}
		r.Fatalf("20 seeds did not show that a wait is missing:\n%v", q)
	})
	t.Logf("at most %d seeds were needed", worst)
}

// TestRepeats: a seed gives the same order every time.
func TestRepeats(t *testing.T) {
	prop.Check(t, func(r *rapid.T) {
		p := drawProgram(r)
		p.waits = nil
		for seed := range uint64(4) {
			first, err1 := p.run(t, seed, false)
			second, err2 := p.run(t, seed, false)
			if !slices.Equal(first, second) || fmt.Sprint(err1) != fmt.Sprint(err2) {
				r.Fatalf("seed %d gives %d, %v and then %d, %v", seed, first, err1, second, err2)
			}
		}
	})
}

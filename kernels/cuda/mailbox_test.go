package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
)

// post is ranks with a box each, in one memory.
type post struct {
	dev   *device
	ranks []*Mailbox
}

func newPost(t *testing.T, ranks, bytes int) *post {
	p := &post{dev: newDevice(t)}
	for r := range ranks {
		m := &Mailbox{Ranks: ranks, Rank: r, Bytes: bytes}
		m.Box = p.dev.alloc(int(m.Size()))
		p.ranks = append(p.ranks, m)
	}
	for _, m := range p.ranks {
		head := make([]byte, m.Head())
		for r, other := range p.ranks {
			binary.LittleEndian.PutUint64(head[MailTable+8*r:], other.Box)
		}
		p.write(t, m.Box, head)
	}
	return p
}

func (p *post) write(t *testing.T, at uint64, data []byte) {
	t.Helper()
	if err := p.dev.mem.Write(at, data); err != nil {
		t.Fatal(err)
	}
}

// launches are those of all ranks.
func (p *post) launches(t *testing.T, results, args [][]Tensor, wide, oneShot bool) (all [][]Launch) {
	t.Helper()
	for r, m := range p.ranks {
		if m.OneShot = 1; oneShot {
			m.OneShot = 1 << 30
		}
		list, err := m.AllReduce(results[r], args[r], wide)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list)
	}
	return all
}

// kinds are the launches in the order of a turn: none comes before what it waits for.
var kinds = []string{"mail_send", "mail_add", "mail_take"}

// run runs the launches of all ranks, of each kind in another order of ranks.
func (p *post) run(all [][]Launch, seed uint64) {
	for k, kind := range kinds {
		for r := range all {
			for _, l := range all[(r*3+k+int(seed))%len(all)] {
				if l.Function[:len(kind)] == kind {
					p.dev.run([]Launch{l}, seed)
				}
			}
			if len(all)%3 == 0 { // 3 r would not meet all
				all = append(all[1:], all[0])
			}
		}
	}
}

func random(rng *rand.Rand, format graph.DType, rows, cols, stride int) kernels.Tensor {
	x := kernels.Tensor{DType: format, Cols: cols, Stride: stride, Dims: [6]int{rows, cols, 1, 1, 1, 1}, F32: make([]float32, rows*stride+1), U16: make([]uint16, rows*stride+1)}
	line := make([]float32, cols)
	for i := range rows {
		for j := range line {
			line[j] = float32(rng.NormFloat64())
		}
		x.Write(i*stride, line)
	}
	return x
}

// TestMailbox: sums over boxes are the bits of PeerSum's, in one shot and in two, of one operand
// and of several, turn after turn, whatever rank comes first. By default there are two turns.
func TestMailbox(t *testing.T) {
	rng, turns := rand.New(rand.NewPCG(7, 0)), 4
	if goldens.Few(t) {
		turns = 2
	}
	for i, c := range []struct{ ranks, rows, cols, gap int }{
		{2, 1, 1, 0}, {2, 1, 1023, 0}, {3, 1, 1024, 0}, {4, 1, 1025, 0}, {8, 2, 4099, 0}, {3, 7, 131, 3}, {8, 3, 1021, 4}, {4, 5, 1028, 4}, {16, 2, 67, 0}, {2, 3, 2047, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p := newPost(t, c.ranks, 64<<10)
			for turn := range turns {
				wide, oneShot := (i+turn)%2 == 0, (i/2+turn)%2 == 0
				operands := 1 + (i+turn)%2
				args, results := make([][]Tensor, c.ranks), make([][]Tensor, c.ranks)
				want := make([]kernels.Tensor, operands)
				for k := range operands {
					format := []graph.DType{graph.F32, graph.BF16, graph.F16}[(i+turn+k)%3]
					rows, cols := c.rows, c.cols
					if k == 1 {
						rows, cols = c.rows+1, 5
					}
					sums := make([]float64, 0)
					var all []Tensor
					for r := range c.ranks {
						x := random(rng, format, rows, cols, cols+c.gap)
						for at, v := range values(&x) {
							if r == 0 {
								sums = append(sums, 0)
							}
							sums[at] += v
						}
						in := p.dev.upload(&x, k)
						args[r], all = append(args[r], in), append(all, in)
						if y := p.dev.empty(&x, 0); turn%2 == 0 {
							results[r] = append(results[r], y)
						} else { // in place
							results[r] = append(results[r], in)
						}
						want[k] = x
					}
					y := p.dev.empty(&want[k], 0)
					list, err := PeerSum([]Tensor{y}, all, wide)
					if err != nil {
						t.Fatal(err)
					}
					p.dev.run(list, 1)
					p.dev.download(y, &want[k])
					unit := map[graph.DType]float64{graph.F32: 1e-6, graph.BF16: 1. / 128, graph.F16: 1. / 1024}[format]
					for at, v := range values(&want[k]) {
						if math.Abs(v-sums[at]) > unit*float64(c.ranks)*math.Sqrt(float64(c.ranks))*4 {
							t.Fatalf("element %d is %v, want %v", at, v, sums[at])
						}
					}
				}
				p.run(p.launches(t, results, args, wide, oneShot), uint64(turn+1))
				for r := range results {
					for k := range results[r] {
						got := clone(&want[k])
						p.dev.download(results[r][k], &got)
						same(t, fmt.Sprintf("turn %d, operand %d of rank %d", turn, k, r), &got, &want[k], 0)
					}
				}
			}
		})
	}
}

// TestMailboxWaits: whichever rank has not sent, those that need what it has wait for it, a stop
// ends the wait, and nothing is written then.
func TestMailboxWaits(t *testing.T) {
	if onDevice != "" {
		t.Skip("a GPU waits for ever")
	}
	const ranks, cols = 3, 3000
	for late := range ranks {
		for _, oneShot := range []bool{true, false} {
			p := newPost(t, ranks, 64<<10)
			args, results := make([][]Tensor, ranks), make([][]Tensor, ranks)
			for r := range ranks {
				x := random(rand.New(rand.NewPCG(1, 0)), graph.F32, 1, cols, cols)
				args[r], results[r] = []Tensor{p.dev.upload(&x, 0)}, []Tensor{p.dev.empty(&x, 0)}
			}
			all := p.launches(t, results, args, true, oneShot)
			for r := range ranks {
				if r != late {
					p.dev.run(all[r][:1], 1)
				}
			}
			for r := range ranks {
				for _, l := range all[r][1:] {
					err := p.dev.launch(l, 5)
					var fault *ptx.Fault
					waits := errors.As(err, &fault) && fault.Kind == ptx.Waits
					if is := r != late || l.Function == "mail_take_4"; waits != is || !waits && err != nil {
						t.Errorf("rank %d of one shot %v, without what rank %d sends: %s: %v", r, oneShot, late, l.Function, err)
					}
					if waits {
						stop := binary.LittleEndian.AppendUint32(nil, 1)
						p.write(t, p.ranks[r].Box+MailStop, stop)
						p.dev.run([]Launch{l}, 1)
						p.write(t, p.ranks[r].Box+MailStop, make([]byte, 4))
					}
				}
				if r == late {
					continue
				}
				if err := p.dev.mem.Read(results[r][0].Ptr+4*1024*uint64(r), make([]byte, 4)); err == nil {
					t.Errorf("rank %d of one shot %v, without what rank %d sends, has a sum", r, oneShot, late)
				}
			}
		}
	}
}

// TestMailboxLimits: what does not fit is for another.
func TestMailboxLimits(t *testing.T) {
	launches := func(m *Mailbox, x []Tensor) int {
		list, err := m.AllReduce(x, x, true)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	m := &Mailbox{Ranks: 4, Bytes: 512 << 10}
	of := func(d graph.DType, rows, cols, stride int) []Tensor {
		return []Tensor{{Tensor: kernels.Tensor{DType: d, Cols: cols, Stride: stride, Dims: [6]int{rows, cols, 1, 1, 1, 1}}}}
	}
	for _, c := range []struct {
		x    []Tensor
		fits bool
	}{
		{of(graph.F32, 1, 131072, 131072), true},
		{of(graph.F32, 1, 131073, 131073), false},
		{of(graph.BF16, 64, 4096, 4096), true},
		{of(graph.BF16, 65, 4096, 4096), false},
		{of(graph.F32, 128, 1000, 1000), true},
		{of(graph.F32, 129, 1000, 1001), false}, // a chunk for each row
		{append(of(graph.F32, 1, 131072, 131072), of(graph.F32, 1, 1, 1)...), false},
		{of(graph.F32, 0, 131073, 131073), true},
	} {
		if got := m.Fits(c.x, c.x); got != c.fits {
			t.Errorf("%v: fits %v", c.x[0].Tensor.Dims, got)
		}
	}
	for _, c := range []struct{ ranks, cols, launches int }{{2, 131072, 2}, {3, 32, 2}, {3, 33, 3}, {8, 9, 2}, {8, 10, 3}} {
		x := of(graph.F32, 1, c.cols, c.cols)
		if got := launches(&Mailbox{Ranks: c.ranks, Bytes: 512 << 10, OneShot: 256}, x); got != c.launches {
			t.Errorf("%d ranks sum %d by %d launches, want %d", c.ranks, c.cols, got, c.launches)
		}
	}
}

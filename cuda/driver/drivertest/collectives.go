package drivertest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/krait-ml/krait/cuda/driver"
)

// collectives: a rank on every device, up to four.
func collectives(t *testing.T, d driver.Driver) {
	list, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.UniqueID()
	if errors.Is(err, driver.ErrMissingLibrary) || errors.Is(err, driver.ErrUnsupported) {
		t.Skip(driver.Explain(err))
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &ranks{id: id, n: min(len(list), 4), gate: make(chan bool), failed: make(chan bool)}
	var all sync.WaitGroup
	for rank := range g.n {
		all.Go(func() {
			t.Run(fmt.Sprint(rank), func(t *testing.T) { g.run(Open(t, d, rank), rank) })
		})
	}
	all.Wait()
}

// ranks are those of a test.
type ranks struct {
	id   driver.UniqueID
	n    int
	mu   sync.Mutex
	made []driver.Collectives

	waiting int
	gate    chan bool // closed when all wait
	failed  chan bool // closed when one fails
}

// barrier waits for all ranks on the host. Whatever allocates, frees or loads comes
// before it, and collectives after: see [driver.Collectives].
func (g *ranks) barrier(v *Device) {
	v.Helper()
	g.mu.Lock()
	gate := g.gate
	if g.waiting++; g.waiting == g.n {
		close(gate)
		g.waiting, g.gate = 0, make(chan bool)
	}
	g.mu.Unlock()
	select {
	case <-gate:
	case <-g.failed:
		v.Fatal("another rank failed")
	}
}

// join makes a rank's communicator. If the rank's test fails, all are aborted,
// so that no other hangs.
func (g *ranks) join(v *Device, rank int) driver.Collectives {
	x, err := v.Driver.Join(v.TB.Context(), v.Context, g.id, g.n, rank)
	v.Must(err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made = append(g.made, x)
	v.Cleanup(func() {
		if !v.Failed() {
			x.Close()
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, x := range g.made {
			x.Abort()
		}
		select {
		case <-g.failed:
		default:
			close(g.failed)
		}
	})
	return x
}

// run makes every call once, with two elements for each rank.
func (g *ranks) run(v *Device, rank int) {
	x, s := g.join(v, rank), v.NewStream()
	n, me := g.n, float32(rank+1)
	a, b, c := v.Words(2*n), v.Words(2*n), v.Words(1)
	mine := make([]float32, 2*n) // 1, 2, 3, … times the rank's number
	for i := range mine {
		mine[i] = me * float32(i+1)
	}
	v.Must(s.CopyIn(a, floats(mine...)))
	sum := float32(n * (n + 1) / 2)
	g.barrier(v)

	v.Must(x.AllReduce(s, a, b, int64(2*n), driver.F32))
	want := make([]float32, 2*n)
	for i := range want {
		want[i] = sum * float32(i+1)
	}
	v.WantFloats(s, b, want...)

	v.Must(x.ReduceScatter(s, a, b, 2, driver.F32))
	v.WantFloats(s, b, want[2*rank:2*rank+2]...)

	v.Must(x.AllGather(s, a, b, 2, driver.F32))
	for i := range n {
		want[2*i], want[2*i+1] = float32(i+1), 2*float32(i+1)
	}
	v.WantFloats(s, b, want...)

	v.Must(x.Broadcast(s, a, b, 2, driver.F32, n-1))
	v.WantFloats(s, b, float32(n), 2*float32(n))

	next, previous := (rank+1)%n, (rank+n-1)%n
	v.Must(x.GroupStart())
	v.Must(x.Send(s, a, 2, driver.F32, next))
	v.Must(x.Recv(s, b, 2, driver.F32, previous))
	v.Must(x.GroupEnd())
	v.WantFloats(s, b, float32(previous+1), 2*float32(previous+1))

	v.Must(x.AllReduce(s, a, a, 2, driver.F32)) // in place
	v.WantFloats(s, a, sum, 2*sum)
	v.Must(x.AsyncError())
	g.graph(v, x, s, c)
}

// graph captures a sum over all ranks.
func (g *ranks) graph(v *Device, x driver.Collectives, s driver.Stream, a driver.Ptr) {
	v.Must(s.CopyIn(a, floats(1)))
	v.Must(s.BeginCapture())
	v.Must(x.AllReduce(s, a, a, 1, driver.F32))
	v.Must(x.AllReduce(s, a, a, 1, driver.F32))
	graph, err := s.EndCapture()
	v.Must(err)
	g.barrier(v)
	for range 2 {
		v.Must(graph.Launch(s))
	}
	v.WantFloats(s, a, float32(math.Pow(float64(g.n), 4)))
	v.Must(graph.Close())
}

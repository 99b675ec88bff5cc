package board

import (
	"math"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/lowering"
)

// Kinds of work, in the order of [Lanes].
const (
	multiply = iota
	mix
	other
	comm
	wait
	kinds
)

const (
	columns = 200   // of the last second
	column  = 0.005 // seconds
	mostOf  = 64    // ranks
)

// Lanes is the work of ranks in the last second, in columns of time. Ranks has the percentages
// [rank][kind][column]; kinds are products with weights, kernels that mix tokens, other kernels,
// collectives and waits.
type Lanes struct {
	From   float64               `json:"from"` // when the first column begins
	Column float64               `json:"column"`
	Ranks  [][kinds][columns]int `json:"ranks"`
}

// lanes records columns in ring buffers.
type lanes struct {
	work    func(op string) string
	kinds   map[string]int // of operations
	ahead   float64        // the board's clock minus the device's
	aligned bool
	ranks   []lane
}

type lane [columns]struct {
	number int64 // of the column since the board was made
	busy   [kinds]float32
}

// record adds the events of a step that has just ended. The offset between the clocks is the least
// one seen, which has the least delay in it.
func (l *lanes) record(events []exec.Event, now float64) {
	last := math.Inf(-1)
	for i := range events {
		last = max(last, events[i].End)
	}
	if len(events) == 0 || math.IsInf(last, 0) || math.IsNaN(last) {
		return
	}
	if ahead := now - last; !l.aligned || ahead < l.ahead || ahead > l.ahead+column {
		l.ahead, l.aligned = ahead, true
	}
	for i := range events {
		e := &events[i]
		if e.Rank < 0 || e.Rank >= mostOf {
			continue
		}
		for e.Rank >= len(l.ranks) {
			l.ranks = append(l.ranks, lane{})
		}
		l.ranks[e.Rank].add(l.kind(e), max(e.Start+l.ahead, now-1), e.End+l.ahead)
	}
}

func (l *lanes) kind(e *exec.Event) int {
	switch e.Kind {
	case lowering.Collective:
		return comm
	case lowering.Wait:
		return wait
	}
	k, ok := l.kinds[e.Op]
	if !ok {
		k = other
		if l.work != nil {
			switch l.work(e.Op) {
			case "multiply":
				k = multiply
			case "mix":
				k = mix
			}
		}
		if l.kinds == nil {
			l.kinds = map[string]int{}
		}
		l.kinds[e.Op] = k
	}
	return k
}

// add adds work from one time to another, at most a second later.
func (l *lane) add(kind int, from, to float64) {
	for n := int64(from / column); from < to && n >= 0; n++ {
		end := min(to, float64(n+1)*column)
		c := &l[n%columns]
		if c.number != n {
			c.number, c.busy = n, [kinds]float32{}
		}
		c.busy[kind] += float32(max(end-from, 0))
		from = max(end, from)
	}
}

// show returns the second that ends now; nil: nothing was ever recorded.
func (l *lanes) show(now float64) *Lanes {
	if len(l.ranks) == 0 {
		return nil
	}
	first := int64(now/column) - columns + 1
	out := &Lanes{From: float64(first) * column, Column: column, Ranks: make([][kinds][columns]int, len(l.ranks))}
	for r := range l.ranks {
		for i := range columns {
			n := first + int64(i)
			if n < 0 {
				continue
			}
			if c := &l.ranks[r][n%columns]; c.number == n {
				for k, busy := range c.busy {
					out.Ranks[r][k][i] = min(int(math.Round(float64(busy)/column*100)), 100)
				}
			}
		}
	}
	return out
}

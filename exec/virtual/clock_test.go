package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/lowering"
)

// plain is hardware on which a kernel of n operations takes n seconds, and a byte a second.
func plain(latency float64) *cost.Profile {
	is := func(v float64) cost.Figure { return cost.Figure{Value: v} }
	return &cost.Profile{
		Name:    "plain",
		Memory:  cost.Memory{Capacity: is(1 << 50), Bandwidth: is(1e300), Achieved: is(1)},
		Compute: map[string]cost.Compute{"f32": {Peak: is(1), Achieved: is(1)}},
		Link:    cost.Link{Algorithms: []cost.Algorithm{{Name: "ring", Step: is(latency), Bandwidth: is(1)}}},
	}
}

// hand makes the schedule of a rank from words: k3 is a kernel of 3 seconds, r0 and w0
// record and wait for an event, sum8 is an all_reduce of 8 bytes, sum4+8 of two values,
// gather8 an all_gather, scatter8 a reduce_scatter. What follows | is on the comm stream.
func hand(t testing.TB, text string, rank, ranks int) *lowering.Schedule {
	t.Helper()
	s := &lowering.Schedule{Name: "hand", Rank: rank, Ranks: ranks, Buffers: make([]lowering.Buffer, 1)}
	compute, comm, _ := strings.Cut(text, "|")
	for stream, words := range []string{compute, comm} {
		for _, word := range strings.Fields(words) {
			kind := strings.TrimRight(word, "0123456789+")
			st := lowering.Step{Stream: lowering.Stream(stream), Name: fmt.Sprint(word, ".", len(s.Steps))}
			var numbers []int
			for n := range strings.SplitSeq(word[len(kind):], "+") {
				x, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				numbers = append(numbers, x)
			}
			switch kind {
			case "r", "w":
				st.Kind, st.Event = map[string]lowering.Kind{"r": lowering.Record, "w": lowering.Wait}[kind], numbers[0]
			case "k":
				st.Op, _ = graph.Lookup("relu")
				ref := []lowering.Ref{{Type: graph.TypeOf(graph.F32, graph.Size(numbers[0]))}}
				st.Args, st.Results = ref, ref
			default:
				collect(&st, kind, numbers)
			}
			s.Steps = append(s.Steps, st)
		}
	}
	return s
}

func collect(st *lowering.Step, kind string, bytes []int) {
	if kind == "send" || kind == "receive" {
		ref := []lowering.Ref{{Type: graph.TypeOf(graph.F32, graph.Size(bytes[0]/4))}}
		if st.Kind, st.Op, st.Args = lowering.Collective, lowering.Send, ref; kind == "receive" {
			st.Op, st.Args, st.Results = lowering.Receive, nil, ref
		}
		return
	}
	whole, split := graph.Layout{}, graph.SplitOn(0, 1)
	from, to := map[string]graph.Layout{"sum": {Kind: graph.Partial}, "gather": split, "scatter": {Kind: graph.Partial}}[kind], whole
	if kind == "scatter" {
		to = split
	}
	st.Kind = lowering.Collective
	st.Op, _ = graph.Between(from.Kind, to.Kind)
	for _, n := range bytes {
		a := graph.TypeOf(graph.F32, graph.Size(n/4))
		b := a
		a.Layout, b.Layout = from, to
		st.Args, st.Results = append(st.Args, lowering.Ref{Type: a}), append(st.Results, lowering.Ref{Type: b})
	}
}

func byHand(t testing.TB, d *Device, ranks []string) *Machine {
	t.Helper()
	var list []*lowering.Schedule
	for r, text := range ranks {
		list = append(list, hand(t, text, r, len(ranks)))
	}
	m, err := New(list, d, exec.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func makespan(t testing.TB, d *Device, ranks []string) float64 {
	t.Helper()
	m := byHand(t, d, ranks)
	s, err := m.Run(graph.Sizes{Tokens: 1, Seqs: 1, Rows: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.Seconds()
}

// both repeats a text for n ranks.
func both(n int, text string) []string { return slices.Repeat([]string{text}, n) }

// TestByHand: schedules whose ends were worked out on paper. An all_reduce of P bytes on n
// ranks takes 2(n-1) latencies and 2(n-1)/n·P seconds, one phase of it half of that.
func TestByHand(t *testing.T) {
	for _, c := range []struct {
		name    string
		latency float64
		ranks   []string
		want    float64
		device  Device
	}{
		{"the longer rank", 1, []string{"k3 k1", "k5"}, 5, Device{}},
		{"nothing overlaps: 3 + (2+8) + 2", 1, both(2, "k3 r0 w1 k2 | w0 sum8 r1"), 15, Device{}},
		{"6 of 10 hidden: max(3+6, 13) + 2", 1, both(2, "k3 r0 k6 w1 k2 | w0 sum8 r1"), 15, Device{}},
		{"all hidden: 3+20+2", 1, both(2, "k3 r0 k20 w1 k2 | w0 sum8 r1"), 25, Device{}},
		{"a late rank: max(3,7) + 10", 1, []string{"k3 r0 w1 | w0 sum8 r1", "k7 r0 w1 | w0 sum8 r1"}, 17, Device{}},
		{"the first one late: max(7,3) + 10", 1, []string{"k7 r0 w1 | w0 sum8 r1", "k3 r0 w1 | w0 sum8 r1"}, 17, Device{}},
		{"a chain: 1 + 6 + 2 + 6 + 1", 1, both(2, "k1 r0 w1 k2 r2 w3 k1 | w0 sum4 r1 w2 sum4 r3"), 16, Device{}},
		{"one sum of two values: 2+12", 1, both(2, "w0 | sum4+8 r0"), 14, Device{}},
		{"two sums of one each: 6+10", 1, both(2, "w0 | sum4 sum8 r0"), 16, Device{}},
		{"four ranks come at 1 to 4, and go on for 4 to 1: 4 + (6+12) + 4", 1, []string{
			"k1 r0 w1 k4 | w0 sum8 r1", "k2 r0 w1 k3 | w0 sum8 r1", "k3 r0 w1 k2 | w0 sum8 r1", "k4 r0 w1 k1 | w0 sum8 r1"}, 26, Device{}},
		{"one phase: 2 + (1+4)", 1, both(2, "k2 r0 w1 | w0 gather8 r1"), 7, Device{}},
		{"the other: 2 + (1+4)", 1, both(2, "k2 r0 w1 | w0 scatter8 r1"), 7, Device{}},
		{"two share the link: 8+8", 0, both(2, "sum8 | sum8"), 16, Device{}},
		{"the second comes at 4: both end at 12, and 5 on comm", 0, both(2, "k4 sum4 | sum8 k5"), 17, Device{}},
		{"a short one lets go: B from 4 to 12, 7 after it, A until 16", 0, both(2, "k4 sum4 k7 | sum12"), 19, Device{}},
		{"latency is not shared: A travels 2 to 6 alone, both until 14, B until 18", 1, both(2, "k4 sum8 | sum8"), 18, Device{}},
		{"comm is a queue: 2 + 10 + 10", 1, both(2, "k2 r0 k2 r1 w2 | w0 sum8 w1 sum8 r2"), 22, Device{}},
		{"three ranks: 4 + 16", 1, both(3, "w0 | sum12 r0"), 20, Device{}},
		{"a slow rank: 6 + 10 + 4", 1, both(2, "k3 r0 w1 k2 | w0 sum8 r1"), 20, Device{SlowRanks: map[int]float64{1: 2}}},
		{"a slow link: 2 + 16", 1, both(2, "w0 | sum8 r0"), 18, Device{SlowLinks: map[int]float64{0: 2}}},
		{"comm goes on while compute waits: 1+10, then k3 beside sum4", 1, both(2, "k1 r0 w1 k3 w2 k1 | w0 sum8 r1 sum4 r2"), 18, Device{}},
	} {
		c.device.Profile = plain(c.latency)
		if got := makespan(t, &c.device, c.ranks); math.Abs(got-c.want) > 1e-12*c.want {
			t.Errorf("%s: %.17g seconds, want %g", c.name, got, c.want)
		}
	}
}

// TestStraggle: ranks wait for the slowest by a share of what their kernels ran since they
// met last, which a rank alone does not.
func TestStraggle(t *testing.T) {
	p := plain(1)
	p.Link.Straggle.Value = 0.5
	for _, c := range []struct {
		name  string
		ranks []string
		want  float64
	}{
		{"alone", []string{"k4 sum8 k2"}, 6},
		{"4 + 2 + 10, 2 + 1 + 6, and 1 without a waiter", both(2, "k4 sum8 k2 sum4 k1"), 26},
		{"the later rank, 6 + 3 + 10", []string{"k4 sum8", "k6 sum8"}, 19},
		{"nothing ran: 10", both(2, "w0 | sum8 r0"), 10},
	} {
		if got := makespan(t, &Device{Profile: p}, c.ranks); math.Abs(got-c.want) > 1e-12*c.want {
			t.Errorf("%s: %.17g seconds, want %g", c.name, got, c.want)
		}
	}
}

// TestForEver: ranks that wait for what never comes.
func TestForEver(t *testing.T) {
	for _, ranks := range [][]string{{"w0"}, {"w0 | sum4 r0", "w1 | w1 sum4 r0"}} {
		d := &Device{Profile: plain(0)}
		if _, err := byHand(t, d, ranks).Run(graph.Sizes{Tokens: 1, Seqs: 1}, nil); err == nil || !strings.Contains(err.Error(), "wait for each other for ever") {
			t.Errorf("%v: %v", ranks, err)
		}
	}
}

// drawn is a schedule that can run: kernels, and sums that travel while others run, each
// waited for some time later. Ranks have their own kernels.
func drawn(r *rand.Rand, ranks int) []string {
	compute, comm := make([]strings.Builder, ranks), ""
	waiting := []int{}
	event := 0
	each := func(f func() string) {
		for i := range compute {
			fmt.Fprint(&compute[i], f(), " ")
		}
	}
	for range 1 + r.IntN(12) {
		each(func() string { return fmt.Sprint("k", r.IntN(9)) })
		if r.IntN(2) == 0 {
			each(func() string { return fmt.Sprint("r", event) })
			comm += fmt.Sprintf("w%d %s%d r%d ", event, []string{"sum", "gather", "scatter"}[r.IntN(3)], 4*ranks*(1+r.IntN(4)), event+1)
			waiting = append(waiting, event+1)
			event += 2
		}
		if len(waiting) > 0 && r.IntN(2) == 0 {
			each(func() string { return fmt.Sprint("w", waiting[0]) })
			waiting = waiting[1:]
		}
	}
	for _, e := range waiting {
		each(func() string { return fmt.Sprint("w", e) })
	}
	var out []string
	for i := range compute {
		out = append(out, compute[i].String()+"| "+comm)
	}
	return out
}

// TestFasterIsNotLonger: twice a rate, or half a latency, never makes a schedule longer,
// and a slow rank or link never shorter. Permuting ranks, which are equal, changes nothing.
func TestFasterIsNotLonger(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		ranks := drawn(r, 1+r.IntN(4))
		p := plain(r.Float64() * 3)
		was := makespan(t, &Device{Profile: p}, ranks)
		for what, change := range map[string]func(*cost.Profile){
			"rate": func(p *cost.Profile) {
				c := p.Compute["f32"]
				c.Peak.Value *= 2
				p.Compute = map[string]cost.Compute{"f32": c}
			},
			"bandwidth": func(p *cost.Profile) { p.Link.Algorithms[0].Bandwidth.Value *= 2 },
			"latency":   func(p *cost.Profile) { p.Link.Algorithms[0].Step.Value /= 2 },
		} {
			q := *p
			q.Link.Algorithms = slices.Clone(p.Link.Algorithms)
			change(&q)
			if got := makespan(t, &Device{Profile: &q}, ranks); got > was*(1+1e-12) {
				t.Fatalf("a better %s: %g after %g seconds: %q", what, got, was, ranks)
			}
		}
		at := r.IntN(len(ranks))
		for what, d := range map[string]*Device{"rank": {SlowRanks: map[int]float64{at: 1.5}}, "link": {SlowLinks: map[int]float64{at: 1.5}}} {
			d.Profile = p
			if got := makespan(t, d, ranks); got < was*(1-1e-12) {
				t.Fatalf("a slow %s: %g after %g seconds: %q", what, got, was, ranks)
			}
		}
		r.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
		if got := makespan(t, &Device{Profile: p}, ranks); got != was {
			t.Fatalf("%g after %g seconds with ranks in another order: %q", got, was, ranks)
		}
	}
}

// TestEvents: what is recorded of two ranks, of which one is late.
func TestEvents(t *testing.T) {
	var events []exec.Event
	ranks := []string{"k3 r0 k6 w1 k2 | w0 sum8 r1", "k7 r0 k1 w1 k2 | w0 sum8 r1"}
	var list []*lowering.Schedule
	for r, text := range ranks {
		list = append(list, hand(t, text, r, len(ranks)))
	}
	m, err := New(list, &Device{Profile: plain(1)}, exec.Setup{Record: func(step []exec.Event) { events = append(events, step...) }})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Run(graph.Sizes{Tokens: 1, Seqs: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range events {
		kind := map[lowering.Kind]string{lowering.Launch: "kernel", lowering.Collective: "sum", lowering.Wait: "wait"}[e.Kind]
		got = append(got, fmt.Sprintf("%d %s %s %g-%g", e.Rank, e.Stream, kind, e.Start, e.End))
	}
	step := func(at float64) []string {
		var out []string
		for _, e := range []struct {
			text     string
			from, to float64
		}{{"0 compute kernel", 0, 3}, {"0 compute kernel", 3, 9}, {"0 comm wait", 0, 3}, {"0 comm sum", 3, 17}, {"0 compute wait", 9, 17}, {"0 compute kernel", 17, 19},
			{"1 compute kernel", 0, 7}, {"1 compute kernel", 7, 8}, {"1 comm wait", 0, 7}, {"1 comm sum", 7, 17}, {"1 compute wait", 8, 17}, {"1 compute kernel", 17, 19}} {
			out = append(out, fmt.Sprintf("%s %g-%g", e.text, at+e.from, at+e.to))
		}
		return out
	}
	if want := append(step(0), step(19)...); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSpan: what of a step is busy, travels and is exposed.
func TestSpan(t *testing.T) {
	m := byHand(t, &Device{Profile: plain(1)}, []string{"k3 r0 k6 w1 k2 | w0 sum8 r1", "k7 r0 k1 w1 k2 | w0 sum8 r1"})
	s, err := m.Run(graph.Sizes{Tokens: 1, Seqs: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Seconds() != 19 || !slices.Equal(s.Busy, []float64{11, 10}) || s.Travelled != 10 || s.Exposed() != 8 {
		t.Errorf("%+v, exposed %g", s, s.Exposed())
	}
}

// TestAgain: a step as the last takes as long, and another its own time.
func TestAgain(t *testing.T) {
	s := hand(t, "k3", 0, 1)
	ref := []lowering.Ref{{Type: graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(3))}}
	s.Steps[0].Args, s.Steps[0].Results = ref, ref
	m, err := New([]*lowering.Schedule{s}, &Device{Profile: plain(0)}, exec.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	at := 0.0
	for _, n := range []int64{1, 2, 2, 5, 1, 1} {
		span, err := m.Run(graph.Sizes{Tokens: n, Seqs: 1}, nil)
		if err != nil || span.Start != at || span.Seconds() != float64(3*n) || m.Last().End != span.End {
			t.Errorf("%d tokens: %+v, %v", n, span, err)
		}
		at = span.End
	}
}

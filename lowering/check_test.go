package lowering

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

// meant is what every step reads in the order of the list, last the outputs.
func meant(s *Schedule) []string {
	read, _ := replay(s, func(ready []int) int { return slices.Min(ready) })
	return read
}

// breaks looks for an order of the steps, which streams and events allow, in
// which a step reads something else than it should, or that gets stuck. Memory
// remembers for each line which step wrote it last.
func breaks(s *Schedule, want []string, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 2))
	for trial := range 60 {
		pick := func(ready []int) int { return ready[rng.IntN(len(ready))] }
		if trial < 2 { // as far ahead as one stream can get
			pick = func(ready []int) int {
				for _, i := range ready {
					if s.Steps[i].Stream == Stream(trial) {
						return i
					}
				}
				return ready[0]
			}
		}
		got, stuck := replay(s, pick)
		if stuck {
			return "it gets stuck"
		}
		for i := range got {
			if got[i] != want[i] {
				return fmt.Sprintf("step %d reads %s instead of %s", i, got[i], want[i])
			}
		}
	}
	return ""
}

// replay runs the steps, picking among the first of each stream, and returns
// what each but records and waits read; last, what the outputs hold. Memory that a step
// writes while it reads it, it may or may not have read.
func replay(s *Schedule, pick func([]int) int) (read []string, stuck bool) {
	type line struct {
		space Space
		at    int64
	}
	memory := map[line]string{}
	lines := func(r Ref, see func(line)) {
		b := s.Buffers[r.Buffer]
		for at := b.Offset; b.Space > Constant && at < b.Offset+b.Bytes; at += align {
			see(line{b.Space, at})
		}
	}
	look := func(refs []Ref) string {
		var all []string
		for _, r := range refs {
			lines(r, func(l line) { all = append(all, memory[l]) })
		}
		return strings.Join(all, " ")
	}
	number := make([]int, len(s.Steps))
	read = []string{""}
	var queue [numStreams][]int
	for i, st := range s.Steps {
		queue[st.Stream] = append(queue[st.Stream], i)
		if st.Kind != Record && st.Kind != Wait {
			number[i] = len(read) - 1
			read = append(read, "")
		}
	}
	happened := map[int]bool{}
	ended := false
	for {
		var ready []int
		for _, q := range queue {
			if len(q) > 0 && (s.Steps[q[0]].Kind != Wait || happened[s.Steps[q[0]].Event]) {
				ready = append(ready, q[0])
			}
		}
		if len(queue[Compute]) == 0 && !ended { // the caller takes the outputs
			var outputs []Ref
			for _, o := range s.Outputs {
				outputs = append(outputs, o.Ref)
			}
			read[len(read)-1], ended = look(outputs), true
		}
		if len(ready) == 0 {
			return read, len(queue[Compute])+len(queue[Comm]) > 0
		}
		i := pick(ready)
		st := &s.Steps[i]
		queue[st.Stream] = queue[st.Stream][1:]
		if happened[st.Event] = happened[st.Event] || st.Kind == Record; st.Kind == Record || st.Kind == Wait {
			continue
		}
		read[number[i]] = look(st.Args)
		for _, r := range st.Results {
			lines(r, func(l line) { memory[l] = r.Name })
		}
		if clobbers(s, st) {
			read[number[i]] += " while it is written"
		}
	}
}

// clobbers reports whether a step writes what it reads, other than state, and not
// element by element as its kernels may.
func clobbers(s *Schedule, st *Step) bool {
	for k := range st.Results {
		to := s.Buffers[st.Results[k].Buffer]
		for i := range st.Args {
			from := s.Buffers[st.Args[i].Buffer]
			if to.Space != from.Space || to.Space <= Constant || to.Offset+to.Bytes <= from.Offset || from.Offset+from.Bytes <= to.Offset {
				continue
			}
			same := to.Offset == from.Offset && to.Bytes == from.Bytes && st.Args[i].Offset == 0 && st.Args[i].Stride == st.Results[k].Stride
			if st.Op.Name == "all_reduce" {
				same = same && i == k
			} else {
				same = same && slices.Contains(st.Op.InPlace, i)
			}
			if !same {
				return true
			}
		}
	}
	return false
}

// without returns s less step i.
func without(s *Schedule, i int) *Schedule {
	out := *s
	out.Steps = slices.Delete(slices.Clone(s.Steps), i, i+1)
	return &out
}

// TestBroken removes every event, and moves every buffer, of random schedules:
// where that can break a run, Check says so.
func TestBroken(t *testing.T) {
	found := 0
	prop.Check(t, func(t *rapid.T) {
		schedules := drawSchedules(t)
		s := schedules[len(schedules)-1]
		seed := rapid.Uint64().Draw(t, "seed")
		want := meant(s)
		hold := func(what string, broken *Schedule) {
			why := breaks(broken, want, seed)
			if why == "" {
				return
			}
			found++
			if broken.Check() == nil {
				t.Fatalf("%s: %s, and Check is content\n%s", what, why, broken)
			}
		}
		for i, st := range s.Steps {
			if st.Kind == Record || st.Kind == Wait {
				hold("without "+st.String(), without(s, i))
			}
		}
		for i := range s.Buffers {
			for _, shift := range []int64{-align, align} {
				moved := *s
				moved.Buffers = slices.Clone(s.Buffers)
				b := &moved.Buffers[i]
				if b.Offset += shift; b.Space > Constant && b.Offset >= 0 && b.Offset+b.Bytes <= s.Bytes[b.Space] {
					hold("moved "+b.Name, &moved)
				}
			}
		}
	})
	if found < 100 {
		t.Errorf("%d of the changes broke a run; too few to tell", found)
	}
}

// twoRanks overlaps the second matmul with the first all_reduce.
const twoRanks = `graph "g" stage=partitioned ranks=2
input %x : f32[t 16]
param @up : f32[64/1 16] shard(0: split)
param @down : f32[16 64/1] shard(1: split)
param @side : f32[16 16]
%a = matmul %x @up
%b = silu %a
%c = matmul %b @down
%d = all_reduce %c
%e = matmul %x @side
%f = add %d %e
%g = matmul %f @up
%h = matmul %g @down
%i = all_reduce %h
%j = add %i %f
output j = %j
`

func TestTwoRanks(t *testing.T) {
	s := lower(t, twoRanks)
	const want = `schedule "g" rank=1 ranks=2
region param 5120 bytes
region input 64 bytes
region token 256 bytes
buffer x input+0 64 bytes : f32[t 16]
buffer up param+0 2048 bytes : f32[64/1 16] shard(0: split)
buffer down param+2048 2048 bytes : f32[16 64/1] shard(1: split)
buffer side param+4096 1024 bytes : f32[16 16]
buffer a token+0 128 bytes : f32[t 64/1] shard(1: split)
buffer c token+128 64 bytes : f32[t 16] partial
buffer e token+0 64 bytes : f32[t 16]
buffer g token+0 128 bytes : f32[t 64/1] shard(1: split)
buffer h token+192 64 bytes : f32[t 16] partial
view b = a[0:32] : f32[t 64/1] shard(1: split)
view d = c[0:16] : f32[t 16]
view f = c[0:16] : f32[t 16]
view i = h[0:16] : f32[t 16]
view j = h[0:16] : f32[t 16]
compute a = matmul x, up
compute b = silu a
compute c = matmul b, down
record 0 on compute
wait 0 on comm
comm d = all_reduce c
record 1 on comm
compute e = matmul x, side
wait 1 on compute
compute f = add d, e
compute g = matmul f, up
compute h = matmul g, down
record 2 on compute
wait 2 on comm
comm i = all_reduce h
record 3 on comm
wait 3 on compute
compute j = add i, f for j
output j = j
`
	if got := s[1].String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Here every event matters.
	for i, st := range s[1].Steps {
		if st.Kind != Record && st.Kind != Wait {
			continue
		}
		if err := without(s[1], i).Check(); err == nil {
			t.Errorf("Check is content without %q", st)
		}
	}
}

// TestCheckRefuses changes the text of a schedule.
func TestCheckRefuses(t *testing.T) {
	good := lower(t, twoRanks)[1].String()
	for _, c := range []struct{ old, new, want string }{
		{"wait 0 on comm\n", "", "d on comm reads c, and does not wait for c on compute"},
		{"record 1 on comm\n", "", "wait 1 on compute: it is not recorded before"},
		{"wait 1 on compute\n", "", "f on compute reads d, and does not wait for d on comm"},
		{"wait 3 on compute\ncompute j = add i, f for j\n", "compute j = silu e\n", "the batch ends before the last collective is done"},
		{"record 1 on comm", "record 0 on comm", "event 0 is recorded twice"},
		{"buffer e token+0", "buffer e token+128", "e on compute writes e where d on comm may not be done"},
		{"buffer g token+0", "buffer g token+128", "reads f, which g has overwritten"},
		{"buffer g token+0", "buffer g token+128", "g writes g over f, which it reads"},
		{"compute b = silu a", "compute b = neg_exp a", "b writes b over a, which it reads"},
		{"buffer e token+0", "buffer e token+100", "buffer e: offset 100 is not aligned to 64"},
		{"buffer e token+0", "buffer e token+256", "buffer e: bytes 256+64 of 256"},
		{"buffer e token+0", "buffer e row+0", "buffer e: f32[t 16] is in the region row"},
		{"buffer a token+0 128", "buffer a token+0 256", "takes 128 bytes, not 256"},
		{"region token 256", "region token 320", "region token has 320 bytes, its buffers need 256"},
		{"view d = c[0:16] : f32[t 16]", "view d = c[1:16] : f32[t 16]", "it goes beyond the end of a row"},
		{"view d = c[0:16] : f32[t 16]", "view d = c[0:16] : bf16[t 16]", "another number format"},
		{"compute e = matmul x, side", "compute e = matmul d, side", "e on compute reads d, and does not wait for d on comm"},
		{"compute f = add d, e", "compute f = add c, e", "f reads c, which d has overwritten"},
		{"compute b = silu a", "comm b = silu a", "it must be on compute"},
		{"compute a = matmul x, up\n", "", "b reads a, which no step has written"},
		{"compute b = silu a\n", "init b = silu a\n", "b reads a, which no step has written"},
		{"compute e = matmul x, side", "compute x = matmul x, side", "x writes x, which is in the region input"},
		{"compute c = matmul b, down", "compute c = matmul b, down for j", "d reads c, which is there for j only"},
		{"comm d = all_reduce c", "comm d = all_reduce c for j", "d = all_reduce c: it is for some outputs; events and collectives always run"},
		{"input+0 64 bytes : f32[t 16]", "input+0 64 bytes : f32[t 16] for j", "a reads x, which batches may be without"},
		{"token+0 64 bytes : f32[t 16]", "token+0 64 bytes : f32[t 16] for j", "buffer e: it is for some outputs; only an input may be"},
		{"compute j = add i, f for j", "compute j = add i, f for j, j", "j = add i, f: it is for the outputs [0 0] of 1; they must be in order"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("the schedule has no %q", c.old)
		}
		s, err := ParseSchedule(strings.Replace(good, c.old, c.new, 1))
		if err != nil {
			t.Fatalf("%q: %v", c.new, err)
		}
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want an error with %q", c.new, c.old, err, c.want)
		}
	}
}

// TestCheckSharing: of two sums each lies where its own operand does, not the other.
func TestCheckSharing(t *testing.T) {
	good := lower(t, `graph "g" stage=partitioned ranks=2
input %x : f32[t 4/1] shard(1: split)
param @w : f32[8 4/1] shard(1: split)
%p = matmul %x @w
%q = matmul %x @w
%r %s = all_reduce %p %q
output r = %r
output s = %s
`)[0].String()
	crossed := strings.Replace(good, "comm r, s =", "comm s, r =", 1)
	s, err := ParseSchedule(crossed)
	if err != nil || good == crossed {
		t.Fatalf("%v\n%s", err, good)
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "r writes s over q, which it reads") && !strings.Contains(err.Error(), "s writes s over q, which it reads") {
		t.Errorf("got %v", err)
	}
}

// TestSpaces: which regions a tensor of no symbol, of tokens, or of a cache may lie in.
func TestSpaces(t *testing.T) {
	for shape, want := range map[Space]string{
		Fixed:    "param state input constant fixed",
		PerToken: "param state input token",
		PerSeq:   "param state input seq",
		Cache:    "cache",
	} {
		var got []string
		for s := range Fixed + 1 {
			if s.has(shape) {
				got = append(got, s.String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of shape %s: %v, want %s", shape, got, want)
		}
	}
}

// TestViewOf: what is a part of a tensor of four rows of six, and what is not.
func TestViewOf(t *testing.T) {
	of := graph.TypeOf(graph.F32, graph.Size(4), graph.Size(6))
	rows := func(n, cols int) graph.Type { return graph.TypeOf(graph.F32, graph.Size(n), graph.Size(cols)) }
	for _, c := range []struct {
		t              graph.Type
		offset, stride int
		want           string
	}{
		{of, 0, 6, ""},
		{rows(4, 2), 4, 6, ""},
		{rows(1, 1), 23, 6, ""},
		{rows(0, 6), 24, 6, ""},
		{graph.TypeOf(graph.BF16, graph.Size(4), graph.Size(6)), 0, 6, "another number format"},
		{graph.TypeOf(graph.F32, graph.Symbol(graph.Tokens), graph.Size(6)), 0, 6, "another first axis"},
		{rows(4, 2), 0, 2, "rows are apart, or longer"},
		{rows(3, 7), 0, 6, "rows are apart, or longer"},
		{rows(1, 1), -6, 6, "it begins outside"},
		{rows(0, 6), 25, 6, "it begins outside"},
		{rows(4, 2), 5, 6, "it goes beyond the end of a row"},
		{rows(4, 6), 6, 6, "it goes beyond the last row"},
	} {
		if got := viewOf(of, c.t, c.offset, c.stride); got != c.want {
			t.Errorf("%s at %d, rows %d apart: %q, want %q", c.t, c.offset, c.stride, got, c.want)
		}
	}
}

func TestCheckAllRefuses(t *testing.T) {
	for want, change := range map[string]func([]*Schedule) []*Schedule{
		"there is no schedule":                                func(s []*Schedule) []*Schedule { return nil },
		"schedule 0 of 1 is for rank 0 of 2":                  func(s []*Schedule) []*Schedule { return s[:1] },
		"schedule 0 of 2 is for rank 1 of 2":                  func(s []*Schedule) []*Schedule { return []*Schedule{s[1], s[0]} },
		`collective 0 is "d = all_reduce c {acc=\"f32\"}" on`: func(s []*Schedule) []*Schedule { s[1].Steps[5].Attrs = graph.Attrs{"acc": "f32"}; return s },
		"the schedule of rank 1: wait 3 on compute: it is n":  func(s []*Schedule) []*Schedule { return []*Schedule{s[0], without(s[1], len(s[1].Steps)-3)} },
	} {
		if err := CheckAll(change(lower(t, twoRanks))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

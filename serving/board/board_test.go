package board

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/lowering"
)

// clock is a time that stands still until it is moved.
type clock struct{ time.Time }

func (c *clock) now() time.Time           { return c.Time }
func (c *clock) move(d time.Duration)     { c.Time = c.Add(d) }
func nothing(*State)                      {}
func state(t *testing.T, b *Board) *State { t.Helper(); return read(t, b.JSON(nothing, nil)) }

func read(t *testing.T, text []byte) *State {
	t.Helper()
	s := &State{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func newBoard() (*Board, *clock) {
	c := &clock{time.Unix(1000, 0)}
	return New(Options{Now: c.now, Work: func(op string) string { return map[string]string{"matmul": "multiply", "conv1d": "mix"}[op] }}), c
}

// batch returns a batch of sequences with these numbers of tokens.
func batch(tokens ...int) *exec.Work {
	w, sum := &exec.Work{}, 0
	for _, n := range tokens {
		sum += n
		w.Ends = append(w.Ends, sum)
	}
	w.Batch.Sizes = graph.Sizes{}
	return w
}

// TestStale: a step that outlives the recording has no length, also when a later request sees its
// end.
func TestStale(t *testing.T) {
	b, c := newBoard()
	state(t, b)
	b.Batch(batch(1))
	c.move(watch)
	b.Record([]exec.Event{{End: 0.001}}) // not recorded
	c.move(time.Hour)
	b.Batch(batch(1))
	state(t, b)
	b.Record([]exec.Event{{End: 0.001}}) // of a step that began before the look
	c.move(fresh)
	if s := state(t, b); s.Totals != (Totals{}) || len(s.Steps) != 0 {
		t.Errorf("kept is %+v, steps %v", s.Totals, s.Steps)
	}
}

// TestWatched: without an open page nothing is recorded or allocated; a request keeps recording on
// for a while.
func TestWatched(t *testing.T) {
	b, c := newBoard()
	w, events := batch(1, 1, 30), []exec.Event{{Op: "matmul", End: 0.001}}
	if n := testing.AllocsPerRun(100, func() { b.Batch(w); b.Record(events) }); n != 0 {
		t.Errorf("without an open page a step takes %g allocations", n)
	}
	if s := state(t, b); s.Totals.Steps != 0 || len(s.Steps) != 0 || s.Lanes != nil || s.Requests == nil {
		t.Errorf("kept is %+v", s)
	}
	for i, want := range []int64{1, 2, 3, 3, 3} { // a look lasts 3 seconds
		c.move(time.Second - time.Duration(i)*time.Millisecond)
		b.Batch(w)
		b.Record(events)
		if b.totals.Steps != want {
			t.Errorf("%d steps are kept after %d seconds, want %d", b.totals.Steps, i+1, want)
		}
		if i == 2 {
			c.move(10 * time.Millisecond)
		}
	}
}

// TestMinute: tokens are counted by second without an open page, and those of a minute ago are
// gone.
func TestMinute(t *testing.T) {
	b, c := newBoard()
	b.Batch(batch(1, 1, 30)) // at 0 s
	c.move(10 * time.Second)
	b.Batch(batch(1))
	b.Batch(batch(1))
	m := state(t, b).Minute
	if m[49] != [2]int64{30, 2} || m[59] != [2]int64{0, 2} {
		t.Errorf("10 s ago it is %v, now %v, in %v", m[49], m[59], m)
	}
	c.move(50 * time.Second)
	if m = state(t, b).Minute; m[9] != [2]int64{0, 2} || m[0] != ([2]int64{}) || m[59] != ([2]int64{}) {
		t.Errorf("after a minute it is %v", m)
	}
	c.move(time.Hour)
	if m = state(t, b).Minute; m != ([60][2]int64{}) {
		t.Errorf("after an hour it is %v", m)
	}
}

// TestSteps: a step says what it was of, and how long it took where its end is told; the last
// are shown, and numbered on.
func TestSteps(t *testing.T) {
	b, c := newBoard()
	state(t, b)
	b.Batch(batch(1, 1, 30, 1, 7))
	c.move(2500 * time.Microsecond)
	b.Record(nil)
	b.Batch(batch(64)) // of a device that does not say when it ends
	b.Batch(batch(1))
	c.move(time.Second)
	s := state(t, b)
	if len(s.Steps) != 2 || s.Steps[0] != [5]int64{0, 2500, 2, 37, 3} || s.Steps[1] != [5]int64{1, 0, 1, 64, 0} {
		t.Errorf("steps are %v", s.Steps)
	}
	if s.Totals != (Totals{Steps: 2, Prefill: 101, Decode: 3, Busy: 0.0025}) {
		t.Errorf("in all they are %+v", s.Totals)
	}
	for range 3 * history {
		b.Batch(batch(1))
		b.Record(nil)
	}
	c.move(time.Second)
	if s := state(t, b); len(s.Steps) != shown || s.Steps[shown-1][0] != s.Totals.Steps-1 || s.Steps[0][0] != s.Totals.Steps-shown {
		t.Errorf("%d steps of %d are shown, from %v", len(s.Steps), s.Totals.Steps, s.Steps[0])
	}
}

// TestJSON: however many look, the server and its cache are asked now and then.
func TestJSON(t *testing.T) {
	b, c := newBoard()
	asked, trees := 0, 0
	for range 100 {
		for range 5 {
			b.JSON(func(*State) { asked++ }, func() Cache { trees++; return Cache{} })
		}
		c.move(50 * time.Millisecond)
	}
	if asked != 25 || trees != 3 {
		t.Errorf("in 5 seconds the server was asked %d times, and the cache %d times", asked, trees)
	}
	c.move(time.Minute) // and what is old is not given
	s := read(t, b.JSON(func(s *State) { s.Running = 7 }, nil))
	if s.Running != 7 || s.Now != 65 || s.Cache != nil {
		t.Errorf("after a minute it is %+v", s)
	}
}

// TestLanes: the columns of a rank have all that it did in the last second, each in its time
// and by its kind, whatever the machine's clock says.
func TestLanes(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	ops := []exec.Event{{Op: "matmul"}, {Op: "conv1d"}, {Op: "add"}, {Kind: lowering.Collective, Op: "all_reduce"}, {Kind: lowering.Wait}}
	for range 50 {
		l := lanes{work: func(op string) string { return map[string]string{"matmul": "multiply", "conv1d": "mix"}[op] }}
		ahead, at, ranks := r.Float64()*100, 5+r.Float64(), 1+r.IntN(4)
		type span struct {
			rank, kind int
			from, to   float64
		}
		var all []span
		for at < 8 {
			var events []exec.Event
			took := r.ExpFloat64() * 0.03
			for rank := range ranks {
				for from := at; ; {
					k := r.IntN(kinds)
					to := min(at+took, from+r.ExpFloat64()*0.004)
					e := ops[k]
					e.Rank, e.Start, e.End = rank, from-ahead, to-ahead
					events, all = append(events, e), append(all, span{rank, k, from, to})
					if from = to; from == at+took {
						break
					}
				}
			}
			at += took
			l.record(events, at)
			at += r.ExpFloat64() * 0.01
		}
		shown := l.show(at)
		first := int64(math.Round(shown.From / column))
		for rank := range ranks {
			for i := range columns {
				var want [kinds]float64
				lo, hi := float64(first+int64(i))*column, float64(first+int64(i)+1)*column
				for _, s := range all {
					if s.rank == rank {
						want[s.kind] += max(min(hi, s.to)-max(lo, s.from), 0) / column * 100
					}
				}
				for k := range kinds {
					if got := shown.Ranks[rank][k][i]; math.Abs(float64(got)-want[k]) > 0.6 {
						t.Fatalf("rank %d, column %d from %.4f: %d %% of kind %d, want %.2f", rank, i, lo, got, k, want[k])
					}
				}
			}
		}
	}
}

// TestLanesHostile: events that cannot be do no harm.
func TestLanesHostile(t *testing.T) {
	l, inf := lanes{}, math.Inf(1)
	for _, e := range []exec.Event{{Rank: -1, End: 1}, {Rank: 1 << 30, End: 1}, {Start: math.NaN(), End: 1}, {End: inf}, {Start: -inf, End: 1}, {Start: 2, End: 1}, {Start: -1e300, End: 1}, {Start: 1, End: math.NaN()}} {
		l.record([]exec.Event{e}, 3)
	}
	l.record([]exec.Event{{Start: 0, End: 1e9}}, 1e9+1) // a look at all columns since would not end
	l.record([]exec.Event{{Start: 1e9 + 9, End: 1e9 + 9.005}}, 1e9+2)
	l.record([]exec.Event{{Start: 1e9 + 9.1, End: 1e9 + 9.105}}, 1e9+5) // the machine's clock stood still
	if shown := l.show(1e9 + 5); shown.Ranks[0][other][columns-2]+shown.Ranks[0][other][columns-1] < 99 {
		t.Errorf("after the machine's clock stood still, the last columns are %v", shown.Ranks[0][other][columns-9:])
	}
	if len(l.ranks) > 1 {
		t.Errorf("%d ranks", len(l.ranks))
	}
	if _, err := json.Marshal(l.show(3)); err != nil {
		t.Error(err)
	}
}

// TestBound: of a large tree the nodes are left that were used last, each with all above it,
// after its parent.
func TestBound(t *testing.T) {
	seed := prop.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range []int{0, 1, 2, mostNodes - 1, mostNodes, mostNodes + 1, 5000} {
		c := Cache{}
		order := r.Perm(n) // of making: a parent may come after its children
		place := make([]int, n)
		for i, p := range order {
			place[p] = i
		}
		depth := make([]int, n)
		c.Nodes = make([]Node, n)
		for i := range n {
			x := Node{Parent: -1, Bytes: int64(i), Unused: r.Float64() * 100}
			if up := r.IntN(i+1) - 1; up >= 0 {
				x.Parent, x.From = place[up], depth[up]
			}
			depth[i] = x.From + 1 + r.IntN(9)
			x.To = depth[i]
			c.Nodes[place[i]] = x
		}
		newest := -1
		for i, x := range c.Nodes {
			if newest < 0 || x.Unused < c.Nodes[newest].Unused {
				newest = i
			}
		}
		before := append([]Node(nil), c.Nodes...)
		c.bound()
		if len(c.Nodes) > mostNodes || len(c.Nodes)+c.More != n || n <= mostNodes && c.More != 0 || n > mostNodes && len(c.Nodes) < mostNodes/2 {
			t.Errorf("of %d nodes %d are left, and %d more", n, len(c.Nodes), c.More)
		}
		found := n == 0
		for i, x := range c.Nodes {
			found = found || x.Bytes == before[newest].Bytes
			if x.Parent >= i || x.Parent < 0 != (x.From == 0) || x.Parent >= 0 && c.Nodes[x.Parent].To != x.From {
				t.Fatalf("of %d nodes, %d is %+v", n, i, x)
			}
		}
		if !found {
			t.Errorf("of %d nodes the one that was used last is left out", n)
		}
	}
}

// TestBundle: the page is one text that asks for nothing outside, and its header lets nothing
// else run.
func TestBundle(t *testing.T) {
	w := httptest.NewRecorder()
	Page(w, httptest.NewRequest("GET", "/", nil))
	page := w.Body.String()
	for _, address := range regexp.MustCompile(`(?i)[a-z]+://[^\s"'<)]+`).FindAllString(page, -1) {
		if address != "http://www.w3.org/2000/svg" {
			t.Errorf("the page has the address %s", address)
		}
	}
	for _, never := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc", "javascript:", "@import", "url("} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %s", never)
		}
	}
	csp := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy is %s, without %s", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
		t.Errorf("the policy is %s", csp)
	}
	for _, part := range []string{"script", "style"} {
		text := regexp.MustCompile(`(?s)<`+part+`>(.*?)</`+part+`>`).FindAllStringSubmatch(page, -1)
		if len(text) != 1 {
			t.Fatalf("%d of %s", len(text), part)
		}
		sum := sha256.Sum256([]byte(text[0][1]))
		if !strings.Contains(csp, part+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("the policy does not allow the %s: %s", part, csp)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	if Page(again, r); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("a page that is known is sent again: %d", again.Code)
	}
}

func BenchmarkUnwatched(bench *testing.B) {
	b := New(Options{})
	w, events := batch(1, 1, 1, 1), make([]exec.Event, 500)
	for bench.Loop() {
		b.Batch(w)
		b.Watched()
		b.Record(events)
	}
}

func BenchmarkWatched(bench *testing.B) {
	b := New(Options{})
	w, events := batch(1, 1, 1, 1), make([]exec.Event, 500)
	for i := range events {
		events[i] = exec.Event{Rank: i % 2, Op: "matmul", Start: float64(i) * 2e-6, End: float64(i+1) * 2e-6}
	}
	for bench.Loop() {
		b.until.Store(math.MaxInt64)
		b.Batch(w)
		b.Record(events)
	}
}

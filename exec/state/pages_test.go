package state_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// attends is a graph with a state and caches, in which every token counts for those after it.
const attends = `graph "attends" stage=model ranks=1
input %ids : i32[t]
input %seg : i32[s 3]
input %past : i32[s]
input %rows : i32[o]
param @table : f32[9 4]
param @taps : f32[4 3]
param @wq : f32[4/2 4]
param @wk : f32[2/2 4]
state %conv : f32[s 4 2]
state %keys : f32[s c 2/2]
state %values : f32[s c 2/2]
%e = embedding %ids @table
%c %conv_new = conv1d %e @taps %conv %seg
%q = matmul %c @wq
%k = matmul %c @wk
%a %keys_new %values_new = attention %q %k %k %keys %values %seg %past {scale=0.5}
%y = select_rows %a %rows
output y = %y
`

// TestLimitPages: a step that needs a page more than may be made fails, and changes nothing: when
// another sequence has left it runs.
func TestLimitPages(t *testing.T) {
	e := attendsEngine(t, exec.Options{Slots: 3, PageTokens: 4})
	e.LimitPages(5)
	step := func(slot, n int) error {
		_, err := e.Step(t.Context(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: make([]int, n)}}, Outputs: []string{}})
		return err
	}
	var slots []int
	for range 2 {
		s, err := e.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	for i, c := range []struct {
		slot, tokens int
		fails        bool
		left         int
	}{{0, 5, false, 3}, {1, 12, false, 0}, {0, 3, false, 0}, {0, 1, true, 0}, {1, 1, true, 0}} {
		if err := step(slots[c.slot], c.tokens); errors.Is(err, state.ErrNoPages) != c.fails || !c.fails && err != nil || e.PagesLeft() != c.left {
			t.Errorf("step %d: %v, %d pages are left, want %d", i, err, e.PagesLeft(), c.left)
		}
	}
	if err := e.Free(slots[1]); err != nil {
		t.Fatal(err)
	}
	if err := step(slots[0], 12); err != nil || e.PagesLeft() != 0 || e.PageUse().Pages != 5 {
		t.Errorf("%v, %d are left of %+v", err, e.PagesLeft(), e.PageUse())
	}
	if n, err := e.Len(slots[0]); err != nil || n != 20 {
		t.Errorf("%d tokens, %v", n, err)
	}
}

// TestSplitPages: of a KV cache that is split, either part has the pages with its tokens alone:
// where the cut is in a page both have that.
func TestSplitPages(t *testing.T) {
	for at, free := range map[int]int{4: 1, 5: 1, 7: 1, 8: 2, 0: 0, 12: 3} { // pages only of the tokens before
		e := attendsEngine(t, exec.Options{Slots: 1, PageTokens: 4})
		e.LimitPages(3)
		slot, err := e.Alloc()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Step(t.Context(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: make([]int, 12)}}, Outputs: []string{}}); err != nil {
			t.Fatal(err)
		}
		kv, err := e.ShareKV(slot, 0, 12)
		if err == nil {
			err = e.Free(slot)
		}
		if err != nil {
			t.Fatal(err)
		}
		before, rest := kv.Split(at)
		if before.Free(); e.PagesLeft() != free {
			t.Errorf("%d tokens: without them %d pages are left, want %d", at, e.PagesLeft(), free)
		}
		if rest.Free(); e.PagesLeft() != 3 {
			t.Errorf("%d tokens: at the end %d pages are left", at, e.PagesLeft())
		}
	}
}

func attendsEngine(t testing.TB, o exec.Options) *exec.Engine {
	t.Helper()
	g, err := graph.Parse(attends)
	if err != nil {
		t.Fatal(err)
	}
	s, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	o.Device = &cpu.Device{Workers: 1}
	e, err := exec.New(s, func(name string) (graph.Array, error) {
		shape := map[string][]int{"table": {9, 4}, "taps": {4, 3}, "wq": {4, 4}, "wk": {2, 4}}[name]
		values := make([]float32, shape[0]*shape[1])
		for i := range values {
			values[i] = float32((i*5+len(name))%11)/4 - 1
		}
		return graph.ArrayOf(values, shape...), nil
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// prefixNode is the rows of some tokens after those of its parents, and maybe the states
// after them, as a cache of prefixes has them.
type prefixNode struct {
	parent *prefixNode
	rows   *state.DeviceKV
	states *state.DeviceState
	tokens []int // all from the beginning on
}

// live is a sequence; its tokens begin with those of a node, if it came from there.
type live struct {
	slot   int
	tokens []int
	base   *prefixNode
}

// pageModel calls a store at random.
type pageModel struct {
	t      *testing.T
	rng    *rand.Rand
	e      *exec.Engine
	alone  *exec.Engine // whose one sequence is always fed anew
	slot   int
	most   int // tokens of a sequence
	seqs   []*live
	nodes  []*prefixNode
	before string
}

func (m *pageModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %v", m.before, err)
	}
}

func (m *pageModel) path(n *prefixNode) (rows []*state.DeviceKV) {
	for ; n != nil; n = n.parent {
		rows = append(rows, n.rows)
	}
	slices.Reverse(rows)
	return rows
}

func (m *pageModel) children(n *prefixNode) (list []*prefixNode) {
	for _, c := range m.nodes {
		if c.parent == n {
			list = append(list, c)
		}
	}
	return list
}

// same compares a sequence with one that was fed the same tokens, at once.
func (m *pageModel) same(q *live) {
	m.t.Helper()
	m.must(m.alone.Reset(m.slot))
	if len(q.tokens) > 0 {
		_, err := m.alone.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: m.slot, Tokens: q.tokens}}})
		m.must(err)
	}
	want, err := m.alone.Snapshot(m.slot)
	m.must(err)
	got, err := m.e.Snapshot(q.slot)
	m.must(err)
	for name, x := range want.States {
		if !slices.Equal(got.States[name], x) {
			m.t.Fatalf("%s: %d tokens: %s is %v, alone %v", m.before, len(q.tokens), name, got.States[name], x)
		}
	}
}

func (m *pageModel) pick() *live { return m.seqs[m.rng.IntN(len(m.seqs))] }

// step feeds some sequences.
func (m *pageModel) step() {
	b := &exec.Batch{}
	for _, q := range m.seqs {
		n := 1 + m.rng.IntN(1+m.rng.IntN(12))
		if m.rng.IntN(2) == 0 || len(q.tokens)+n > m.most {
			continue
		}
		var ids []int
		for range n {
			ids = append(ids, m.rng.IntN(9))
		}
		q.tokens = append(slices.Clone(q.tokens), ids...)
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: q.slot, Tokens: ids})
	}
	if len(b.Sequences) > 0 {
		_, err := m.e.Step(context.Background(), b)
		m.must(err)
	}
}

// keep makes a node of what a sequence has beyond its node's.
func (m *pageModel) keep() {
	q := m.pick()
	from := 0
	if q.base != nil {
		from = len(q.base.tokens)
	}
	rows, err := m.e.ShareKV(q.slot, from, len(q.tokens))
	m.must(err)
	states, err := m.e.CopyState(q.slot)
	m.must(err)
	q.base = &prefixNode{q.base, rows, states, q.tokens}
	m.nodes = append(m.nodes, q.base)
}

// put lets a sequence resume from a node.
func (m *pageModel) put(n *prefixNode) {
	if n.states == nil {
		return
	}
	q := m.pick()
	m.must(m.e.Resume(q.slot, n.states, m.path(n)...))
	q.tokens, q.base = n.tokens, n
}

func (m *pageModel) split(n *prefixNode) {
	at := n.rows.From + m.rng.IntN(n.rows.To-n.rows.From+1)
	upper := &prefixNode{parent: n.parent, tokens: n.tokens[:at]}
	upper.rows, n.rows = n.rows.Split(at)
	n.parent = upper
	m.nodes = append(m.nodes, upper)
}

// drop takes a node away: one without children, or with one, which it then joins.
func (m *pageModel) drop(n *prefixNode) {
	next := m.children(n)
	switch len(next) {
	case 0:
		n.rows.Free()
	case 1:
		next[0].rows, next[0].parent = n.rows.Join(next[0].rows), n.parent
	default:
		return
	}
	if n.states != nil {
		n.states.Free()
	}
	for _, q := range m.seqs {
		if q.base == n {
			q.base = n.parent
		}
	}
	m.nodes = slices.DeleteFunc(m.nodes, func(x *prefixNode) bool { return x == n })
}

// host brings a node to the host and back.
func (m *pageModel) host(n *prefixNode) {
	rows, err := m.e.OffloadKV(n.rows)
	m.must(err)
	n.rows.Free()
	n.rows, err = m.e.LoadKV(rows)
	m.must(err)
	if n.states != nil {
		states, err := m.e.OffloadState(n.states)
		m.must(err)
		n.states.Free()
		n.states, err = m.e.LoadState(states)
		m.must(err)
	}
}

// again writes what a sequence has over itself, or something else, which ends it.
func (m *pageModel) again(q *live) {
	if m.rng.IntN(2) == 0 {
		s, err := m.e.Snapshot(q.slot)
		m.must(err)
		m.must(m.e.Restore(q.slot, s))
		return
	}
	s, err := m.e.State(q.slot, "keys")
	m.must(err)
	for i := range s {
		s[i] += 100
	}
	m.must(m.e.SetState(q.slot, "keys", s))
	m.reset(q)
}

func (m *pageModel) reset(q *live) {
	if m.rng.IntN(2) == 0 {
		m.must(m.e.Reset(q.slot))
	} else {
		m.must(m.e.Free(q.slot))
		var err error
		q.slot, err = m.e.Alloc()
		m.must(err)
	}
	q.tokens, q.base = nil, nil
}

// do does one thing, and looks at the counts.
func (m *pageModel) do(i int) {
	what := []string{"step", "step", "step", "keep", "put", "put", "split", "drop", "host", "again", "reset"}[m.rng.IntN(11)]
	m.before = fmt.Sprintf("after %d: %s", i, what)
	var n *prefixNode
	if len(m.nodes) > 0 {
		n = m.nodes[m.rng.IntN(len(m.nodes))]
	}
	switch what {
	case "step":
		m.step()
	case "keep":
		if len(m.nodes) < 12 {
			m.keep()
		}
	case "again":
		m.again(m.pick())
	case "reset":
		m.reset(m.pick())
	default:
		if n != nil {
			map[string]func(*prefixNode){"put": m.put, "split": m.split, "drop": m.drop, "host": m.host}[what](n)
		}
	}
	var rows []*state.DeviceKV
	for _, n := range m.nodes {
		rows = append(rows, n.rows)
	}
	m.must(m.e.CheckPages(rows))
	m.same(m.pick())
}

// TestPages: after random calls of a store, in pages of any
// size, they have what they would have alone, and pages are had by as many as are counted.
func TestPages(t *testing.T) {
	for i, tokens := range []int{1, 2, 3, 5, 8, 16, 100} {
		seed := uint64(i)
		o := exec.Options{Slots: 3, PageTokens: tokens, Context: []int{0, 40}[i%2]}
		m := &pageModel{t: t, rng: rand.New(rand.NewPCG(seed, 77)), e: attendsEngine(t, o), alone: attendsEngine(t, exec.Options{}), most: 40}
		var err error
		m.slot, err = m.alone.Alloc()
		m.must(err)
		for range o.Slots {
			slot, err := m.e.Alloc()
			m.must(err)
			m.seqs = append(m.seqs, &live{slot: slot})
		}
		for k := range 300 {
			m.do(k)
		}
		for _, q := range m.seqs {
			m.same(q)
			m.must(m.e.Free(q.slot))
		}
		for _, n := range m.nodes {
			n.rows.Free()
			if n.states != nil {
				n.states.Free()
			}
		}
		if o.Context > 0 {
			tokens = min(tokens, o.Context)
		}
		if u := m.e.PageUse(); u.Free != u.Pages || u.Tokens != tokens {
			t.Errorf("pages of %d: all is freed, and the use is %+v", tokens, u)
		}
		if n, free := m.e.CopyUse(); n != free || n == 0 {
			t.Errorf("pages of %d: all is freed, and of %d slots for states %d are free", tokens, n, free)
		}
	}
}

// TestPageUse: sequences that begin alike share pages, a page partly written is copied when one of
// them goes on, and pages are there from the beginning where the context is known.
func TestPageUse(t *testing.T) {
	e := attendsEngine(t, exec.Options{Slots: 4, PageTokens: 8, Context: 30})
	used := func(want int) {
		t.Helper()
		if u := e.PageUse(); u.Pages-u.Free != want {
			t.Errorf("%d pages are used, want %d", u.Pages-u.Free, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	feed := func(slot, n int) error {
		_, err := e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: make([]int, n)}}})
		return err
	}
	if u := e.PageUse(); u != (state.PageUse{Tokens: 8, Pages: 16, Free: 16}) {
		t.Errorf("%+v", u)
	}
	var slots [4]int
	for i := range slots {
		var err error
		slots[i], err = e.Alloc()
		must(err)
	}
	must(feed(slots[0], 20))
	used(3)
	states, err := e.CopyState(slots[0])
	must(err)
	rows, err := e.ShareKV(slots[0], 0, 20)
	must(err)
	for _, slot := range slots[1:] {
		must(e.Resume(slot, states, rows))
	}
	used(3)
	must(feed(slots[0], 1))
	used(4)
	must(feed(slots[1], 5)) // to a page of its own, and one more
	used(6)
	must(feed(slots[1], 5))
	used(6)
	wantError(t, feed(slots[1], 1), "a sequence of 31 tokens; the KV cache has room for 30")
	rows.Free()
	must(feed(slots[2], 1)) // slot 3 has the page still
	used(7)
	must(feed(slots[3], 1)) // not shared
	used(7)
	for _, slot := range slots {
		must(e.Free(slot))
	}
	used(0)
	_, err = e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: slots[0], Tokens: []int{1}}}})
	wantError(t, err, "it was freed")
}

// TestPageTokensRefused: sizes of pages that cannot be.
func TestPageTokensRefused(t *testing.T) {
	for _, n := range []int{-1, 1<<20 + 1} {
		_, err := state.NewTable(nil, 1, 0, 0, n)
		wantError(t, err, fmt.Sprintf("pages of %d tokens; the size must be from 1 to 1048576", n))
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

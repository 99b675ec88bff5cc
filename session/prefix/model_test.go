package prefix

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	share "github.com/krait-ml/krait/internal/goldens"
)

// held is a node as a plain list has it: the whole prefix that it ends. Its parent is
// the longest other prefix of it that is held, so that a split is one more line of the
// list, and a join one less.
type held struct {
	prefix string
	state  bool
	time   float64
	made   int
}

// list is the rules read once more, over a list of prefixes and by brute force.
type list struct {
	m         Model
	capacity  int64
	rule      rule
	now       float64
	nodes     []*held
	made      int
	evictions int
}

func (l *list) parent(n *held) string {
	best := ""
	for _, x := range l.nodes {
		if x != n && strings.HasPrefix(n.prefix, x.prefix) && len(x.prefix) > len(best) {
			best = x.prefix
		}
	}
	return best
}

func (l *list) get(prefix string) *held {
	for _, x := range l.nodes {
		if x.prefix == prefix {
			return x
		}
	}
	return nil
}

func (l *list) children(n *held) (c []*held) {
	for _, x := range l.nodes {
		if x != n && l.parent(x) == n.prefix {
			c = append(c, x)
		}
	}
	return c
}

func (l *list) size(n *held) int64 {
	b := int64(len(n.prefix)-len(l.parent(n))) * l.m.CacheBytes
	if n.state {
		b += l.m.StateBytes
	}
	return b
}

func (l *list) bytes() (sum int64) {
	for _, x := range l.nodes {
		sum += l.size(x)
	}
	return sum
}

// matched is how much of a text the list has.
func (l *list) matched(text string) (m int) {
	for _, x := range l.nodes {
		n := 0
		for n < min(len(x.prefix), len(text)) && x.prefix[n] == text[n] {
			n++
		}
		m = max(m, n)
	}
	return m
}

func (l *list) lookup(input string, now float64) (hit int, marks Marks) {
	m, most := l.matched(input), len(input)-1
	if l.m.StateBytes == 0 {
		// The node touched is the shortest held that has all that matched.
		var touched *held
		for _, x := range l.nodes {
			if m > 0 && strings.HasPrefix(x.prefix, input[:m]) && (touched == nil || len(x.prefix) < len(touched.prefix)) {
				touched = x
			}
		}
		for _, x := range l.nodes {
			if touched != nil && (x == touched || l.rule.leaves && strings.HasPrefix(touched.prefix, x.prefix)) {
				x.time = now
			}
		}
		return min(m, most), Marks{}
	}
	for d := most; d > 0; d-- {
		if x := l.get(input[:d]); x != nil && x.state {
			x.time, hit = now, d
			for _, above := range l.nodes {
				if l.rule.leaves && strings.HasPrefix(x.prefix, above.prefix) {
					above.time = now
				}
			}
			break
		}
	}
	if l.m.Grain <= 1 {
		if hit < m && m <= most {
			marks.Branch = m
		}
		return hit, marks
	}
	for d := hit + 1; d <= most; d++ {
		if d%l.m.Grain == 0 {
			marks.End = d
			if d <= m {
				marks.Branch = d
			}
		}
	}
	if marks.End == marks.Branch {
		marks.End = 0
	}
	return hit, marks
}

func (l *list) insert(prefix string, state bool, now float64) {
	// Where it leaves an edge, that is split.
	if m := l.matched(prefix); m > 0 && m < len(prefix) && l.get(prefix[:m]) == nil {
		l.nodes = append(l.nodes, &held{prefix[:m], false, now, l.made})
		l.made++
	}
	n := l.get(prefix)
	if n == nil {
		n = &held{prefix, false, now, l.made}
		l.made++
		l.nodes = append(l.nodes, n)
	}
	n.time, n.state = now, n.state || state
}

func (l *list) admit(all string, marks Marks, now float64) {
	states := l.m.StateBytes > 0
	l.now = now
	for _, d := range []int{marks.Branch, marks.End} {
		if d > 0 {
			l.insert(all[:d], true, now)
		}
	}
	l.insert(all, states, now)
	for l.bytes() > l.capacity {
		l.evict(all)
	}
}

// evict sorts all candidates.
func (l *list) evict(text string) {
	type scored struct {
		n    *held
		s    float64
		path bool
	}
	var all, may []*held
	for _, n := range l.nodes {
		if l.size(n) > 0 {
			all = append(all, n)
			if k := len(l.children(n)); k == 0 || k == 1 && n.state && !l.rule.leaves {
				may = append(may, n)
			}
		}
	}
	if l.rule.released {
		all = may
	}
	recency := func(n *held) float64 {
		if l.rule.released {
			return 1 / max(l.now-n.time, 1e-6)
		}
		return n.time
	}
	worth := func(n *held) float64 {
		bytes := l.size(n)
		if l.rule.released { // those of the whole prefix
			if bytes = int64(len(n.prefix)) * l.m.CacheBytes; n.state {
				bytes += l.m.StateBytes
			}
		}
		return (l.m.FLOPs(len(n.prefix)) - l.m.FLOPs(len(l.parent(n)))) / float64(bytes)
	}
	var times, worths []float64
	for _, n := range all {
		times, worths = append(times, recency(n)), append(worths, worth(n))
	}
	norm := func(x float64, of []float64) float64 {
		lo, hi := slices.Min(of), slices.Max(of)
		if lo == hi {
			return 0
		}
		return (x - lo) / (hi - lo)
	}
	var c []scored
	for _, n := range may {
		c = append(c, scored{n, norm(recency(n), times) + l.rule.alpha*norm(worth(n), worths), strings.HasPrefix(text, n.prefix)})
	}
	slices.SortFunc(c, func(a, b scored) int {
		for _, less := range []float64{number(a.path) - number(b.path), a.s - b.s, a.n.time - b.n.time, float64(a.n.made - b.n.made)} {
			if less != 0 {
				return int(math.Copysign(1, less))
			}
		}
		return 0
	})
	gone := c[0].n
	parent, leaf := l.get(l.parent(gone)), len(l.children(gone)) == 0
	l.join(gone)
	l.evictions++
	if leaf && parent != nil && !parent.state && len(l.children(parent)) == 1 {
		l.join(parent)
	}
}

// join drops a node. Its only child, if any, gets its edge, and by the released code the later
// time.
func (l *list) join(n *held) {
	for _, child := range l.children(n) {
		if l.rule.released {
			child.time = max(child.time, n.time)
		}
	}
	l.drop(n)
}

func (l *list) drop(n *held) {
	l.nodes = slices.DeleteFunc(l.nodes, func(x *held) bool { return x == n })
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// tokensOf makes tokens of letters.
func tokensOf(text string) Tokens {
	var b Builder
	for _, c := range []byte(text) {
		b.Append(int32(c), 1)
	}
	return b.Tokens()
}

func textOf(t Tokens) string {
	var b strings.Builder
	for i := range t.Len() {
		b.WriteByte(byte(t.At(i)))
	}
	return b.String()
}

// request makes a request of letters.
func request(at float64, input, output string) Request {
	return Request{At: at, Tokens: tokensOf(input + output), InputLen: len(input)}
}

// drawText is a few letters; letters in their order are runs.
func drawText(rng *rand.Rand, least, most int) string {
	b := make([]byte, least+rng.IntN(most-least+1))
	for i := range b {
		b[i] = 'a' + byte(rng.IntN(3))
	}
	return string(b)
}

// drawRequest begins with something that was there before, now and then.
func drawRequest(rng *rand.Rand, before []string) (input, output string) {
	if len(before) > 0 && rng.IntN(2) == 0 {
		input = before[rng.IntN(len(before))]
		input = input[:rng.IntN(len(input)+1)]
	}
	if input == "" || rng.IntN(3) > 0 {
		input += drawText(rng, 1, 12)
	}
	if rng.IntN(3) > 0 {
		output = drawText(rng, 0, 8)
	}
	return input, output
}

var models = map[string]Model{
	"hybrid":    {1000, 7, 10, 45, 0},
	"attention": {1000, 7, 10, 0, 0},
	"ssm":       {1000, 0, 0, 45, 0},
	"free":      {0, 0, 3, 1, 0}, // all are worth the same
	"grain":     {1000, 7, 10, 45, 3},
}

// rules are those of lru, of α, of leaves only, and as Marconi's code has it.
var rules = []rule{{}, {alpha: 0.5}, {alpha: 2}, {alpha: 10}, {leaves: true}, {alpha: 0.5, released: true}, {alpha: 2, released: true}}

// TestTreeAgainstList: after each operation the tree holds what the list of prefixes
// does, to every time and place in the order, and bytes are what its nodes hold.
func TestTreeAgainstList(t *testing.T) {
	seeds := uint64(60)
	if share.Few(t) {
		seeds = 20
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 7))
				capacity := int64(1 + rng.IntN(600))
				r := rules[rng.IntN(len(rules))]
				tree, plain := NewTree(m, capacity, 0), &list{m: m, capacity: capacity, rule: r}
				tree.rule = r
				var before []string
				for i := range 60 {
					now := float64(i / (1 + int(seed)%2)) // times are distinct, or pairs
					input, output := drawRequest(rng, before)
					before = append(before, input+output)
					r := request(now, input, output)
					hit, marks := tree.Lookup(r.Input(), now)
					wantHit, wantMarks := plain.lookup(input, now)
					if hit != wantHit || marks != wantMarks {
						t.Fatalf("seed %d, request %d: hit %d, marks %+v; want %d, %+v", seed, i, hit, marks, wantHit, wantMarks)
					}
					if i%7 == 6 && len(input) > 0 && m.StateBytes > 0 { // what a tree would have asked for before others were admitted
						marks = Marks{Branch: rng.IntN(len(input))}
						wantMarks = marks
					}
					grown := tree.Bytes() + tree.growth(r.Tokens, marks)
					tree.capacity = math.MaxInt64
					tree.Admit(r.Tokens, marks, now)
					if tree.Bytes() != grown {
						t.Fatalf("seed %d, request %d: %d bytes before eviction, foretold %d", seed, i, tree.Bytes(), grown)
					}
					for tree.capacity = capacity; tree.bytes > capacity; {
						tree.evict()
					}
					plain.admit(input+output, wantMarks, now)
					if tree.Evictions() != plain.evictions {
						t.Fatalf("seed %d, request %d: %d evictions; want %d", seed, i, tree.Evictions(), plain.evictions)
					}
					if got, want := dumpTree(t, tree), dumpList(plain); got != want || tree.Bytes() != plain.bytes() {
						t.Fatalf("seed %d, request %d (%q %q): the tree holds %d bytes\n%swant %d\n%s", seed, i, input, output, tree.Bytes(), got, plain.bytes(), want)
					}
					if i == 30 {
						tree = tree.Clone()
					}
				}
			}
		})
	}
}

// dumpTree is a line per node, and holds links and sums against each other.
func dumpTree(t *testing.T, tree *Tree) string {
	var lines []string
	bytes := int64(0)
	for i, n := range tree.nodes {
		bytes += n.bytes
		if n.index != i || tree.child(n.parent, n.tokens) != n || n.depth <= n.parent.depth || n.tokens.Len() < n.depth {
			t.Fatalf("node %d is not where it should be", i)
		}
		lines = append(lines, fmt.Sprintf("%q<%d state %v time %g made %d bytes %d", textOf(n.tokens.Prefix(n.depth)), n.parent.depth, n.state, n.time, n.made, n.bytes))
	}
	if bytes != tree.bytes {
		t.Fatalf("nodes hold %d bytes, the tree says %d", bytes, tree.bytes)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func dumpList(l *list) string {
	var lines []string
	for _, n := range l.nodes {
		lines = append(lines, fmt.Sprintf("%q<%d state %v time %g made %d bytes %d", n.prefix, len(l.parent(n)), n.state, n.time, n.made, l.size(n)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// TestBlocksAgainstList: entries are whole prefixes in a list.
func TestBlocksAgainstList(t *testing.T) {
	type entry struct {
		time   float64
		number int
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 8))
		m, size := models["hybrid"], 1+rng.IntN(5)
		capacity, each := int64(1+rng.IntN(3000)), int64(size)*10+45
		blocks, plain, evictions, made := NewBlocks(m, capacity, size), map[string]entry{}, 0, 0
		var before []string
		for i := range 80 {
			now := float64(i / (1 + int(seed)%3))
			input, output := drawRequest(rng, before)
			all := input + output
			before = append(before, all)
			want := 0
			for want+size <= len(input)-1 && plain[all[:want+size]].number > 0 {
				want += size
			}
			for d := size; d <= len(all); d += size {
				e := plain[all[:d]]
				if e.number == 0 {
					made++
					e.number = made
				}
				e.time = now
				plain[all[:d]] = e
			}
			for int64(len(plain))*each > capacity {
				gone := ""
				for p, e := range plain {
					g := plain[gone]
					if gone == "" || e.time < g.time || e.time == g.time && (len(p) > len(gone) || len(p) == len(gone) && e.number < g.number) {
						gone = p
					}
				}
				delete(plain, gone)
				evictions++
			}
			hit := blocks.Serve(request(now, input, output))
			if hit != want || blocks.Evictions() != evictions || blocks.Bytes() != int64(len(plain))*each {
				t.Fatalf("seed %d, request %d: hit %d, %d evictions, %d bytes; want %d, %d, %d", seed, i, hit, blocks.Evictions(), blocks.Bytes(), want, evictions, int64(len(plain))*each)
			}
		}
	}
}

// TestTuned: the α that is chosen is the one that does best from the list of prefixes as it was.
func TestTuned(t *testing.T) {
	chosen, positive := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m, capacity := models["hybrid"], int64(1+rng.IntN(1500))
		var trace []Request
		var before []string
		for i := range 120 {
			input, output := drawRequest(rng, before)
			before = append(before, input+output)
			trace = append(trace, request(float64(i), input, output))
		}
		// hits replays with α 0 up to a request, then with alpha.
		hits := func(from, to int, alpha float64) (sum, evictedAt int) {
			l := &list{m: m, capacity: capacity}
			evictedAt = -1
			for i, r := range trace[:to] {
				if i == from {
					l.rule.alpha = alpha
				}
				hit, marks := l.lookup(textOf(r.Input()), r.At)
				if l.admit(textOf(r.Tokens), marks, r.At); l.evictions > 0 && evictedAt < 0 {
					evictedAt = i
				}
				if i >= from {
					sum += hit
				}
			}
			return sum, evictedAt
		}
		_, k := hits(0, len(trace), 0)
		var want *float64
		if end := k + max(1, 5*k); k >= 0 && end <= len(trace) {
			most := -1
			for _, alpha := range []float64{0, 0.1, 0.2, 0.5, 1, 2, 5, 10} {
				if sum, _ := hits(k, end, alpha); sum > most {
					want, most = &alpha, sum
				}
			}
		}
		got := Simulation{Model: m}.serve(&published{Tree: NewTree(m, capacity, 0)}, trace)
		if (got.Alpha == nil) != (want == nil) || want != nil && *want != *got.Alpha {
			t.Fatalf("seed %d: first eviction at %d, α %v, want %v", seed, k, got.Alpha, want)
		}
		if want != nil {
			chosen++
			positive += int(number(*want > 0))
		}
	}
	if chosen < 10 || positive < 3 {
		t.Errorf("α was chosen %d times, and not 0 %d times: the cases show little", chosen, positive)
	}
}

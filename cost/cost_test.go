package cost

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
)

// TestProfiles: those that come with the program can be read, and every figure says where
// it is from.
func TestProfiles(t *testing.T) {
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if p.Name != name || p.About == "" || len(p.Link.Algorithms) < 4 {
			t.Errorf("%+v", p)
		}
		if n := p.Network; n != nil && (len(n.Algorithms) < 4 || p.Link.About == "") {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// figure is one of a profile.
func figure(value float64) map[string]any { return map[string]any{"value": value, "source": "me"} }

// edited is a profile's text with a change to what lies at a path.
func edited(t *testing.T, path string, value any) []byte {
	t.Helper()
	return editedOf(t, "a100-nvlink", path, value)
}

func editedOf(t *testing.T, profile, path string, value any) []byte {
	t.Helper()
	text, err := profileFiles.ReadFile("profiles/" + profile + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	keys := strings.Split(path, ".")
	at := tree
	for _, k := range keys[:len(keys)-1] {
		next, ok := at[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[k] = next
		}
		at = next
	}
	if last := keys[len(keys)-1]; value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEveryKey: each object, figure and number of a profile, left out or made negative or
// with another key beside it, is an error that names file and key.
func TestEveryKey(t *testing.T) {
	var tree map[string]any
	if err := json.Unmarshal(edited(t, "about", "it"), &tree); err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(path string, at map[string]any)
	walk = func(path string, at map[string]any) {
		if path != "" {
			path += "."
		}
		if path != "link.ring." { // whose keys are protocols
			refuses(t, path+"surplus", 1, "my.json: "+path+"surplus: unknown key; it must be one of ")
			n++
		}
		for key, v := range at {
			full := path + key
			sub, is := v.(map[string]any)
			switch {
			case full == "multiprocessors" || full == "compute.tf32" || full == "compute.bf16" || full == "compute.f16" || full == "link.peers" || strings.HasPrefix(full, "link.") && strings.Count(full, ".") == 2:
				// a profile may be without
			case key == "source" || key == "assumption":
				refuses(t, full, nil, "my.json: "+path+"source: missing")
				refuses(t, full, 7, "my.json: "+full+": must be a string, found 7")
			default:
				refuses(t, full, nil, "my.json: "+full+": missing")
			}
			if key == "value" {
				refuses(t, full, -1, "my.json: "+full+": -1 is negative")
				refuses(t, full, "much", "my.json: "+full+": must be a number, found much")
			}
			n++
			if is {
				refuses(t, full, 3, "my.json: "+full+": must be an object, found 3")
				walk(full, sub)
			}
		}
	}
	walk("", tree)
	if n < 100 {
		t.Errorf("%d keys seen", n)
	}
}

func refuses(t *testing.T, path string, value any, want string) {
	t.Helper()
	if strings.Contains(path, "link.one_shot.surplus") || strings.Contains(path, "link.two_shot.surplus") || strings.Contains(path, "link.tree.surplus") {
		want = "my.json: " + path + ": must be an object, found 1" // a protocol
	}
	if _, err := Parse("my.json", edited(t, path, value)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s = %v: %v\nwant %s", path, value, err, want)
	}
}

// TestWrong: other errors of profiles.
func TestWrong(t *testing.T) {
	for _, c := range []struct {
		path  string
		value any
		want  string
	}{
		{"memory.bandwidth.value", 0, "memory.bandwidth.value: is 0; it must be above 0"},
		{"memory.achieved.value", 1.5, "memory.achieved.value: 1.5 is more than 1, and it is a fraction"},
		{"memory.reserve.value", 1e11, "memory.reserve: 100000000000 bytes of 85040352460"},
		{"memory.capacity.value", 1e30, "memory.capacity.value: 1e+30 is more than 1.15"},
		{"overhead.step.assumption", nil, "overhead.step.source: missing"},
		{"overhead.step.source", "me", "overhead.step: it has a source and an assumption"},
		{"link.tree", map[string]any{"unavailable": ""}, "link.tree.unavailable: must be a string, found "},
		{"link.straggle", map[string]any{"value": 1.5, "source": "me"}, "link.straggle.value: 1.5 is more than 1, and it is seconds per second"},
		{"link.straggle", map[string]any{"value": -1, "source": "me"}, "link.straggle.value: -1 is negative"},
		{"multiprocessors", map[string]any{"value": 0, "source": "me"}, "multiprocessors.value: is 0; it must be above 0"},
		{"shared", 1, "shared: must be true or false, found 1"},
		{"operations.mull.source", "me", `operations.mull: no operation is called "mull"`},
		{"operations.mul.source", "me", "operations.mul.ranks: missing"},
		{"operations.matmul/f9.source", "me", `operations.matmul/f9: unknown number format "f9"`},
		{"operations.matmul/f9/short.source", "me", `operations.matmul/f9/short: unknown number format "f9"`},
		{"operations.matmul/bf16/long.source", "me", `operations.matmul/bf16/long: unknown number format "bf16/long"`},
		{"operations.mul", map[string]any{"source": "me", "ranks": map[string]any{"x": 1}}, "operations.mul.ranks.x: the key is a number above 0"},
		{"operations.mul", map[string]any{"source": "me", "ranks": map[string]any{"1": map[string]any{"8": -3}}}, "operations.mul.ranks.1.8: -3 is negative"},
	} {
		if _, err := Parse("my.json", edited(t, c.path, c.value)); err == nil || !strings.Contains(err.Error(), "my.json: "+c.want) {
			t.Errorf("%s = %v: %v\nwant %s", c.path, c.value, err, c.want)
		}
	}
	for path, c := range map[string]struct {
		value any
		want  string
	}{
		"node": {"a100-efa", `node: "a100-efa" is no profile of one node that comes with krait`}, "network": {nil, "network: missing"},
		"network.ranks": {figure(0), "network.ranks.value: is 0; it must be above 0"}, "network.rails": {figure(1.5), "network.rails.value: 1.5 is not a whole number"},
		"network.ranks.value": {65, "network.ranks.value: 65 is more than 64, and it is pieces of a node"}, "network.about": {nil, "network.about: missing"},
		"network.ring.simple.step": {figure(-1), "network.ring.simple.step.value: -1 is negative"}, "network.tree": {nil, "network.tree: missing"},
		"network.ring.simple.bandwidth": {figure(0), "network.ring.simple.bandwidth.value: is 0"}, "network.one_shot": {map[string]any{"unavailable": "far"}, "network.one_shot: unknown key"},
		"network.straggle": {figure(0), "network.straggle: unknown key"}, "memory": {map[string]any{}, "memory: unknown key; it must be one of version, about, node, network"},
	} {
		if _, err := Parse("my.json", editedOf(t, "a100-hdr", path, c.value)); err == nil || !strings.Contains(err.Error(), "my.json: "+c.want) {
			t.Errorf("%s = %v: %v\nwant %s", path, c.value, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "a profile is an object of JSON: EOF", "[]": "a profile is an object of JSON: found [", "{}": "x: about: missing",
		`{"about": "a", "about": "b"}`: `the key "about" is there twice`, `{"memory": {"a": [1]}}`: "a is a list, and profiles have none",
		`{} {}`: "there is something after the profile", `{"about": "a"`: "a profile is an object of JSON: EOF",
		`{"memory": {"capacity": {"value": 1e999}}}`: "memory.capacity.value: 1e999 is more than a number can be",
	} {
		if _, err := Parse("x", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestFind: a profile is a name or a file.
func TestFind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, edited(t, "about", "mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err := Find(file); err != nil || p.About != "mine" || p.Name != file {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := Find("a101"); err == nil || !strings.Contains(err.Error(), `"a101" is neither a hardware profile nor a file; profiles are a100-efa, a100-hdr, a100-nvlink, `) {
		t.Error(err)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	if _, err := Find(Local); err == nil || !strings.Contains(err.Error(), "krait calibrate measures it") {
		t.Error(err)
	}
}

func is(v float64) Figure { return Figure{Value: v} }

// TestRing: where latency is free, a collective takes what a rank sends in a ring by the
// bandwidth, for every row and number of ranks.
func TestRing(t *testing.T) {
	const bandwidth = 3e9
	l := &Link{Algorithms: []Algorithm{{"ring", "", is(0), is(0), is(bandwidth)}}}
	for _, op := range graph.Collectives() {
		for ranks := 2; ranks <= 9; ranks++ {
			for _, elems := range []int{1, 7, 160, 1 << 20} {
				ty := graph.TypeOf(graph.BF16, graph.Size(elems))
				_, bytes := graph.Payload(ty)
				sent := graph.Sent(op, ty, ranks).Float(graph.Sizes{})
				got := l.Best(ExchangeOf(op, ranks, bytes.Float(graph.Sizes{}), sent))
				phases := map[string]float64{"all_reduce": 2}[op.Name]
				want := max(phases, 1) * float64(ranks-1) / float64(ranks) * 2 * float64(elems) / bandwidth
				if math.Abs(got.Seconds()/want-1) > 1e-9 {
					t.Errorf("%s of %d on %d ranks: %g, want %g", op.Name, elems, ranks, got.Seconds(), want)
				}
			}
		}
	}
}

// TestAlgorithms: what each takes, and that the fastest is taken: one shot for few bytes,
// a ring for many.
func TestAlgorithms(t *testing.T) {
	sum, _ := graph.Lookup("all_reduce")
	gather, _ := graph.Lookup("all_gather")
	one := func(name string) *Link { return &Link{Algorithms: []Algorithm{{name, "", is(5), is(2), is(10)}}} }
	for _, c := range []struct {
		algorithm string
		op        *graph.Op
		ranks     int
		want      float64 // of 80 bytes, in seconds
	}{
		{"ring", sum, 4, 5 + 6*2 + 2*3./4*8}, {"ring", gather, 4, 5 + 3*2 + 3./4*8},
		{"tree", sum, 4, 5 + 4*2 + 2*3./4*8}, {"tree", sum, 5, 5 + 6*2 + 2*4./5*8}, {"tree", sum, 2, 5 + 2*2 + 8},
		{"one_shot", sum, 4, 5 + 2 + 3*8}, {"one_shot", gather, 4, 5 + 2 + 3./4*8},
		{"two_shot", sum, 4, 5 + 2*2 + 2*3./4*8},
	} {
		ty := graph.TypeOf(graph.F32, graph.Size(20))
		got := one(c.algorithm).Best(ExchangeOf(c.op, c.ranks, 80, graph.Sent(c.op, ty, c.ranks).Float(graph.Sizes{})))
		if math.Abs(got.Seconds()-c.want) > 1e-12 {
			t.Errorf("%s of %s on %d ranks: %g, want %g", c.algorithm, c.op.Name, c.ranks, got.Seconds(), c.want)
		}
	}
	if got := one("tree").Best(ExchangeOf(gather, 4, 80, 240)); got.Algorithm != nil {
		t.Errorf("a tree gathers: %+v", got)
	}
	p, err := Find("h100-nvlink")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bytes float64
		ranks int
		want  string
	}{{4096, 4, "one_shot"}, {1 << 28, 4, "ring"}, {1 << 28, 8, "ring"}} {
		e := ExchangeOf(sum, c.ranks, c.bytes, 2*float64(c.ranks-1)*c.bytes)
		best := p.Link.Best(e)
		if best.Algorithm.Name != c.want {
			t.Errorf("%g bytes on %d ranks: %s", c.bytes, c.ranks, best.Algorithm.Name)
		}
		for i := range p.Link.Algorithms {
			l := Link{Algorithms: p.Link.Algorithms[i : i+1]}
			if x := l.Best(e); x.Algorithm != nil && x.Seconds() < best.Seconds() {
				t.Errorf("%s is faster than %s", x.Algorithm.Name, best.Algorithm.Name)
			}
		}
		if x := p.Only("ring").Link.Best(e); x.Algorithm.Name != "ring" || x.Seconds() < best.Seconds() {
			t.Errorf("only a ring: %+v", x)
		}
	}
}

const matmul = `schedule "m" rank=%d ranks=%d
buffer x input+0 0 bytes : f32[t 64]
buffer w param+0 0 bytes : bf16[48 64] shard(0: split)
buffer y token+0 192 bytes : f32[t 48] shard(1: split)
compute y = matmul x, w
`

// TestLaunch: a product by hand, on one rank and on a part of it, bound by either side.
func TestLaunch(t *testing.T) {
	for _, c := range []struct {
		ranks, rank int
		rate, bytes float64
		t           int64
		want        float64
	}{
		{1, 0, 100, 1e30, 3, 1 + 2*3*64*48/50.},
		{2, 1, 100, 1e30, 3, 1 + 2*3*64*24/50.},
		{1, 0, 1e30, 100, 3, 1 + (3*64*4+48*64*2+3*48*4)/25.},
		{4, 2, 1e30, 100, 5, 1 + (5*64*4+12*64*2+5*12*4)/25.},
	} {
		text := fmt.Sprintf(matmul, c.rank, c.ranks)
		if c.ranks == 1 {
			text = strings.NewReplacer(" shard(0: split)", "", " shard(1: split)", "").Replace(text)
		}
		s, err := lowering.ParseSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		p := &Profile{Memory: Memory{Bandwidth: is(c.bytes), Achieved: is(.25)}, Compute: map[string]Compute{"f32": {is(7), is(1)}, "bf16": {is(c.rate), is(.5)}},
			Overhead: Overhead{Launch: is(1), GraphLaunch: is(.5)}}
		r, err := p.Rater(c.ranks, "bf16")
		if err != nil {
			t.Fatal(err)
		}
		w := WorkOf(s, &s.Steps[0])
		z := graph.Sizes{Tokens: c.t, Seqs: 1, Rows: 1}
		if got := r.Time(&w, z, false); math.Abs(got-c.want) > 1e-9 || math.Abs(r.Time(&w, z, true)-c.want+.5) > 1e-9 {
			t.Errorf("%+v: %g", c, got)
		}
	}
	p := &Profile{Name: "p", Compute: map[string]Compute{"f32": {}}}
	if _, err := p.Rater(1, "bf16"); err == nil || !strings.Contains(err.Error(), "profile p has no rate for products in bf16; it has f32") {
		t.Error(err)
	}
}

// TestShort: a product of fewer terms than kernels.ShortDepth has a rate of its own, and where that
// was not measured the one of others.
func TestShort(t *testing.T) {
	text := strings.NewReplacer(" shard(0: split)", "", " shard(1: split)", "").Replace(fmt.Sprintf(matmul, 0, 1))
	for _, c := range []struct {
		depth string
		key   string
		want  map[string]float64 // by what was measured
	}{
		{"64", "matmul/bf16/short", map[string]float64{"": 10, "matmul/bf16": 20, "matmul/bf16/short": 40}},
		{"512", "matmul/bf16", map[string]float64{"": 10, "matmul/bf16": 20, "matmul/bf16/short": 10}},
	} {
		s, err := lowering.ParseSchedule(strings.ReplaceAll(text, "64", c.depth))
		if err != nil {
			t.Fatal(err)
		}
		w, z := WorkOf(s, &s.Steps[0]), graph.Sizes{Tokens: 3, Seqs: 1, Rows: 1}
		if w.Key != c.key {
			t.Errorf("%s terms: %s", c.depth, w.Key)
		}
		for measured, rate := range c.want {
			p := &Profile{Memory: Memory{Bandwidth: is(1e30), Achieved: is(1)}, Compute: map[string]Compute{"f32": {is(10), is(1)}}, Operations: map[string]Measured{}}
			if measured != "" {
				p.Operations["matmul/bf16"] = Measured{Points: []Point{{1, 1, 20}}}
				if measured == "matmul/bf16/short" {
					p.Operations = map[string]Measured{measured: {Points: []Point{{1, 1, 40}}}}
				}
			}
			r, err := p.Rater(1, "")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := r.Time(&w, z, false), w.FLOPs.Float(z)/rate; got != want {
				t.Errorf("%s terms, measured %q: %g seconds, want %g", c.depth, measured, got, want)
			}
		}
	}
}

// TestAttention: prompts are priced as tiles of bf16 on a GPU that multiplies in bf16, by the
// format of caches, else in f32, as single tokens, wide heads and CPUs are.
func TestAttention(t *testing.T) {
	for _, c := range []struct {
		head   int
		cache  string
		format string
		tokens int64
		shared bool
		want   float64 // operations per second
	}{
		{64, "f32", "bf16", 9, false, 1000 * TileShare / 3},
		{256, "f16", "bf16", 9, false, 1000 * TileShare / 3},
		{64, "bf16", "bf16", 9, false, 1000 * TileShare / 2},
		{64, "e4m3", "bf16", 9, false, 1000 * TileShare / 2},
		{64, "f32", "f32", 9, false, 7},
		{64, "f32", "bf16", 1, false, 7},
		{512, "f32", "bf16", 9, false, 7},
		{64, "f32", "bf16", 9, true, 7},
	} {
		g, err := graph.Parse(fmt.Sprintf(attention, c.head, c.cache))
		if err != nil {
			t.Fatal(err)
		}
		s, err := lowering.Lower(g)
		if err != nil {
			t.Fatal(err)
		}
		p := &Profile{Shared: c.shared, Memory: Memory{Bandwidth: is(1e30), Achieved: is(1)}, Compute: map[string]Compute{"f32": {is(7), is(1)}, "bf16": {is(1000), is(.5)}}}
		r, err := p.Rater(1, c.format)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(s[0].Steps, func(st lowering.Step) bool { return st.Op.Name == "attention" })
		w := WorkOf(s[0], &s[0].Steps[at])
		z := graph.Sizes{Tokens: c.tokens, Seqs: 1, Rows: 1, Cached: 10, Pairs: 40}
		if got, want := r.Time(&w, z, false), float64(4*c.head*40)/c.want; math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%+v: %g, want %g", c, got, want)
		}
	}
}

const attention = `graph "g" stage=model ranks=1
input %%q : f32[t %[1]d/%[1]d]
input %%seg : i32[s 3]
input %%past : i32[s]
state %%keys : %[2]s[s c %[1]d/%[1]d]
state %%values : %[2]s[s c %[1]d/%[1]d]
%%a %%nk %%nv = attention %%q %%q %%q %%keys %%values %%seg %%past {scale=1.0}
output a = %%a
`

// TestMeasured: rates between two measurements, beyond them, and on more ranks.
func TestMeasured(t *testing.T) {
	m := Measured{Points: []Point{{1, 1, 10}, {1, 100, 1000}, {2, 1, 8}}}
	for _, c := range []struct {
		ranks      int
		rows, want float64
	}{{1, 1, 10}, {1, 10, 100}, {1, 100, 1000}, {1, 5000, 1000}, {1, 0, 10}, {2, 50, 8}, {4, 1, 4}} {
		if got := m.rate(c.ranks, c.rows); math.Abs(got/c.want-1) > 1e-12 {
			t.Errorf("%d ranks, %g rows: %g, want %g", c.ranks, c.rows, got, c.want)
		}
	}
	if got := (&Measured{Points: []Point{{2, 1, 8}}}).rate(1, 1); got != 0 {
		t.Errorf("one rank by two: %g", got)
	}
}

// TestShared: ranks on one device divide it.
func TestShared(t *testing.T) {
	p := &Profile{Shared: true, Memory: Memory{Capacity: is(1000), Reserve: is(100)}}
	if p.Usable(3) != 300 || (&Profile{Memory: p.Memory}).Usable(3) != 900 {
		t.Error(p.Usable(3))
	}
}

// TestText: what is written is read again, and written the same.
func TestText(t *testing.T) {
	for _, name := range Names() {
		p, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		p.Shared = true
		p.Link.Straggle = Figure{Value: 0.05, Source: "me"}
		p.Link.Unavailable = []string{"tree: because <it> is \"so\""}
		p.Link.Algorithms = slices.DeleteFunc(p.Link.Algorithms, func(a Algorithm) bool { return a.Name == "tree" })
		p.Operations = map[string]Measured{"matmul/bf16": {"me", []Point{{1, 1, 10}, {1, 64, 1e9}, {2, 8, 3.5}}}, "matmul/bf16/short": {"me", []Point{{1, 1, 5}}}, "silu": {"you", []Point{{1, 1, 1}}}}
		q, err := Parse(name, p.Text())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p, q) {
			t.Errorf("%+v\nbecame\n%+v", p, q)
		}
	}
}

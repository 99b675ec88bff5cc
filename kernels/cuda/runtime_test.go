package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// TestPeerSum: sums over ranks are those that ranks which share memory make, to
// the last bit.
func TestPeerSum(t *testing.T) {
	check(t, "", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		format, rows, cols, ranks := d.format(), d.size("rows"), d.size("cols", 67, 1027), d.pick("ranks", 1, 2, 3, 8, MaxPeers)
		wide := rapid.Bool().Draw(t, "wide")
		like, offset := d.tensor(format, rows, cols), d.offset()
		want := d.packed(graph.F32, rows, cols)
		clear(want.F32)
		var args []Tensor
		for range ranks {
			x := like
			d.fill(&x, func(v float64) float64 { return v })
			args = append(args, dev.upload(&x, offset))
			line := make([]float32, cols)
			for i := range rows {
				x.Read(line, i*x.Stride)
				sum := want.Row(i)
				for j, v := range line {
					sum[j] += v
				}
				if !wide {
					kernels.Round(format, sum)
				}
			}
		}
		kernels.Round(format, want.F32)
		results := args
		if rapid.Bool().Draw(t, "elsewhere") {
			results = []Tensor{dev.empty(&like, offset)}
		}
		launches, err := PeerSum(results, args, wide)
		if err != nil {
			t.Fatal(err)
		}
		dev.run(launches, d.rng.Uint64())
		for i := range results {
			got := clone(&like)
			dev.download(results[i], &got)
			same(t, "sum", &got, &want, 0)
		}
	})
	if _, err := PeerSum(nil, make([]Tensor, MaxPeers+1), false); err == nil || err.Error() != "the sum of 17 ranks for 0; the kernel takes up to 16" {
		t.Errorf("got %v", err)
	}
}

// TestPieces copies, clears and converts pieces of tensors.
func TestPieces(t *testing.T) {
	check(t, "", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		rows, cols, format := d.size("rows"), d.size("cols", 67, 2051), d.format()
		x, y := d.tensor(format, rows, cols), d.tensor(format, rows, cols)
		from, to := dev.upload(&x, d.offset()), dev.empty(&y, d.offset())
		dev.run(Copy(to, from), d.rng.Uint64())
		dev.download(to, &y)
		same(t, "copy", &y, &x, 0)
		dev.run(Zero(to), d.rng.Uint64())
		dev.download(to, &y)
		zeros := clone(&y)
		d.fill(&zeros, func(float64) float64 { return 0 })
		same(t, "zeros", &y, &zeros, 0)
		z := d.tensor(d.format(), rows, cols)
		out := dev.empty(&z, d.offset())
		dev.run(Convert(out, from), d.rng.Uint64())
		want := clone(&z)
		line := make([]float32, cols)
		for i := range rows {
			x.Read(line, i*x.Stride)
			want.Write(i*want.Stride, line)
		}
		dev.download(out, &z)
		same(t, "converted", &z, &want, 0)
	})
}

// chosen is what a sampler draws from logits, in float64; close says that
// rounding may decide otherwise.
func chosen(logits []float32, c Choice) (id int, close bool) {
	order := make([]int, len(logits)) // best first
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return logits[order[i]] > logits[order[j]] })
	best := float64(logits[order[0]])
	if c.Temperature == 0 {
		return order[0], false
	}
	if k := int(c.TopK); k > 0 && k < len(order) {
		for k < len(order) && logits[order[k]] == logits[order[k-1]] {
			k++
		}
		order = order[:k]
	}
	weight := func(id int) float64 { return math.Exp((float64(logits[id]) - best) / c.Temperature) }
	total := 0.0
	for _, id := range order {
		total += weight(id)
	}
	if c.TopP > 0 && c.TopP < 1 {
		sum := 0.0
		for i, id := range order {
			sum += weight(id)
			close = close || math.Abs(sum/total-c.TopP) < 1e-5
			if sum >= c.TopP*total {
				order, total = order[:i+1], sum
				break
			}
		}
	}
	slices.Sort(order)
	sum := 0.0
	id = -1
	for _, at := range order {
		if w := weight(at); w > 0 {
			sum += w
			close = close || math.Abs(sum/total-c.Uniform) < 1e-5
			if id < 0 && sum > c.Uniform*total {
				id = at
			}
		}
	}
	if id < 0 {
		return order[len(order)-1], true
	}
	return id, close
}

func anyLogit(d *draw) float32 {
	switch d.rng.IntN(8) {
	case 0:
		return float32(math.Inf(-1))
	case 1, 2:
		return float32(d.rng.IntN(3)) // ties
	case 3:
		return float32(math.Copysign(0, -1))
	}
	return float32(4 * d.rng.NormFloat64())
}

// TestSample draws tokens as the sampler on the host does.
func TestSample(t *testing.T) {
	decided := 0
	check(t, "", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		rows, n := d.pick("rows", 1, 2), d.size("vocabulary", 1023, 1025, 4099)
		logits := d.tensor(graph.F32, rows, n)
		var choices []Choice
		var data []byte
		for i := range rows {
			for j := range logits.Row(i) {
				logits.Row(i)[j] = anyLogit(d)
			}
			logits.Row(i)[d.rng.IntN(n)] = 1 // not all are -Inf
			c := Choice{
				Temperature: rapid.SampledFrom([]float64{0, 1e-30, 0.01, 0.7, 1, 3, 1e300}).Draw(t, "temperature"),
				TopK:        int32(d.pick("top-k", 0, 1, 2, 3, 10, 2000)),
				TopP:        rapid.OneOf(rapid.SampledFrom([]float64{0, 1e-9, 0.5, 1}), rapid.Float64Range(0, 1)).Draw(t, "top-p"),
				Uniform:     d.rng.Float64(),
			}
			choices, data = append(choices, c), c.Append(data)
		}
		if len(data) != rows*ChoiceBytes {
			t.Fatalf("%d bytes for %d choices", len(data), rows)
		}
		at, ids := dev.alloc(len(data)), dev.alloc(4*rows)
		if err := dev.mem.Write(at, data); err != nil {
			t.Fatal(err)
		}
		dev.run(Sample(ids, dev.upload(&logits, d.offset()), at), d.rng.Uint64())
		got := d.ints(rows, 1)
		dev.download(Tensor{Tensor: got, Ptr: ids}, &got)
		for i, c := range choices {
			want, close := chosen(logits.Row(i), c)
			if !close {
				decided++
				if int(got.I32[i]) != want {
					t.Fatalf("%+v chose token %d (%g), want %d (%g)", c, got.I32[i], logits.Row(i)[got.I32[i]], want, logits.Row(i)[want])
				}
			}
		}
	})
	if decided < 50 {
		t.Errorf("only %d choices were decided beyond rounding", decided)
	}
}

// TestArgmax: the first of the highest, or why there is none.
func TestArgmax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negative := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1}, 0},
		{[]float32{1, 3, 2, 3}, 1},
		{[]float32{-inf, -5, -7}, 1},
		{[]float32{negative, 0}, 0},
		{[]float32{-inf, -inf}, NoToken},
		{[]float32{1, nan, 2}, BrokenLogits},
		{[]float32{1, inf}, BrokenLogits},
		{append(make([]float32, 1500), 1), 1500},
		{append(make([]float32, 1500), nan), BrokenLogits},
	} {
		dev := newDevice(t)
		x := shaped(graph.F32, 1, len(c.logits))
		x.F32 = c.logits
		ids, choice := dev.alloc(8), dev.alloc(ChoiceBytes)
		if err := dev.mem.Write(choice, Choice{Temperature: 1, TopK: 1}.Append(nil)); err != nil {
			t.Fatal(err)
		}
		on := dev.upload(&x, 0)
		dev.run(Argmax(ids, on), 0)
		dev.run(Sample(ids+4, on, choice), 0)
		var out [8]byte
		if err := dev.mem.Read(ids, out[:]); err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.LittleEndian.Uint32(out[:])); got != c.want {
			t.Errorf("argmax is %d, want %d", got, c.want)
		}
		// Of tokens that tie at the k-th place all stay, and the first is drawn with 0.
		if got := int32(binary.LittleEndian.Uint32(out[4:])); got != c.want {
			t.Errorf("drew %d, want %d", got, c.want)
		}
	}
}

// TestMixtureMemory: with little memory, tokens come in several parts and have
// room for the top experts only; more is a fault.
func TestMixtureMemory(t *testing.T) {
	defer func(any, bytes int) { anyExperts, mixtureBytes = any, bytes }(anyExperts, mixtureBytes)
	anyExperts, mixtureBytes = 0, 4000
	op := findOp(t, "experts")
	check(t, "", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		c := expertsOf(d, 4, 7, 5, 9, d.format())()
		top := c.Attrs.Int("top")
		weights := &c.Args[1]
		for i := range weights.Rows() {
			used := 0
			for j, w := range weights.Row(i) {
				if w != 0 {
					used++
				}
				if used > top {
					weights.Row(i)[j] = 0
				}
			}
		}
		on := dev.deviceCall(op, &c, nil, d.offset)
		dev.compute(op, on, d.rng.Uint64())
		plain := reference.Kernels["experts"]
		plain.Run(&c, 0, 1)
		got := clone(&c.Results[0])
		dev.download(on.Results[0], &got)
		same(t, "result", &got, &c.Results[0], 1e-5)
	})

	d, dev := &draw{rng: newRand(1)}, newInterpreter(t)
	x, weights, w := d.packed(graph.F32, 1, 8), d.packed(graph.F32, 1, 3), d.packed(graph.F32, 3, 8, 8)
	c := call(graph.Attrs{"act": "silu", "top": 2}, one(d.packed(graph.F32, 1, 8)), x, weights, w, w, w)
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	on.Scratch = dev.alloc(int(Kernels["experts"].Scratch(on)))
	launches, err := Kernels["experts"].Launches(on)
	if err != nil {
		t.Fatal(err)
	}
	var fault *ptx.Fault
	if err := dev.launch(launches[0], 0); !errors.As(err, &fault) || fault.Kind != ptx.Trap {
		t.Errorf("three experts where there is room for two: %v", err)
	}
}

// TestRefusals: what the kernels do not take is said.
func TestRefusals(t *testing.T) {
	table := shaped(graph.F32, 9, 4)
	table.Axis, table.Runs = 0, make([]graph.Run, 9)
	ids, y := shaped(graph.I32, 1), shaped(graph.F32, 1, 4)
	if _, err := Kernels["embedding"].Launches(&Call{Args: []Tensor{{Tensor: ids}, {Tensor: table}}, Results: []Tensor{{Tensor: y}}}); err == nil ||
		err.Error() != "the table's rows have 9 fields; the kernel takes up to 8" {
		t.Errorf("got %v", err)
	}
	q := shaped(graph.F32, 1, 513)
	q.Unit = 513
	cache := shaped(graph.F32, 1, 1, 513)
	c := &Call{Args: []Tensor{{Tensor: q}, {Tensor: q}, {Tensor: q}, {Tensor: cache}, {Tensor: cache}, {Tensor: shaped(graph.I32, 1, 3)}, {Tensor: ids}}, Results: []Tensor{{Tensor: q}}}
	if _, err := Kernels["attention"].Launches(c); err == nil || err.Error() != "heads of 513 channels; the attention kernels take up to 512" {
		t.Errorf("got %v", err)
	}
}

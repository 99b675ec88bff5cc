package cuda

import (
	"errors"
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

// TestMixtureMemory: with little memory, tokens come in several parts and have
// room for the top experts only; more is a fault.
func TestMixtureMemory(t *testing.T) {
	defer func(any, bytes int) { anyExperts, mixtureBytes = any, bytes }(anyExperts, mixtureBytes)
	anyExperts, mixtureBytes = 0, 4000
	op := findOp(t, "experts")
	check(t, "", func(t *rapid.T) {
		d, dev := newDraw(t), newDevice(t)
		c := expertsOf(d, 4, 7, 5, 9, d.format())()
		top, rows := c.Attrs.Int("top"), d.pick("rows", 33, 70)
		c.Args[0], c.Args[1], c.Results[0] = d.tensor(graph.F32, rows, 5), d.tensor(graph.F32, rows, 4), d.tensor(graph.F32, rows, 9)
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
	x, weights, w := d.packed(graph.F32, fewRows+1, 8), d.packed(graph.F32, fewRows+1, 3), d.packed(graph.F32, 3, 8, 8)
	c := call(graph.Attrs{"act": "silu", "top": 2}, one(d.packed(graph.F32, fewRows+1, 8)), x, weights, w, w, w)
	on := dev.deviceCall(op, &c, nil, func() int { return 0 })
	on.Scratch = dev.alloc(int(Kernels["experts"].Scratch(on)))
	launches, err := Kernels["experts"].Launches(on)
	if err != nil {
		t.Fatal(err)
	}
	var fault *ptx.Fault
	if err := dev.launch(launches[0], 0); !errors.As(err, &fault) || fault.Kind != ptx.Trap {
		t.Errorf("three experts in room for two: %v", err)
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

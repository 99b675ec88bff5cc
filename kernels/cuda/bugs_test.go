package cuda

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/choices"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"github.com/ulikunitz/xz"
)

// TestBugs runs copies of kernels with a mistake in each: the interpreter must catch it, and the
// kernel without it must pass. By default it runs one of three.
func TestBugs(t *testing.T) {
	few := goldens.Few(t)
	for i, c := range []struct {
		bug  string
		kind ptx.FaultKind
		op   string
		call func(d *draw) kernels.Call
	}{
		{"reduction_barrier", ptx.SharedRace, "choose", func(d *draw) kernels.Call {
			x := d.packed(graph.F32, 1, 100)
			return choices.Call(choices.Case{Logits: x.F32, Choice: kernels.Choice{Temperature: 1, TopK: 5, TopP: 0.9}})
		}},
		{"last_fence", ptx.GlobalRace, "choose", func(d *draw) kernels.Call {
			x := d.packed(graph.F32, 1, 600)
			return choices.Call(choices.Case{Logits: x.F32, Choice: kernels.Choice{Temperature: 1}})
		}},
		{"scan_barrier", ptx.SharedRace, "ssd_scan", func(d *draw) kernels.Call { return scanOf(d, 70) }},
		{"gate_barrier", ptx.SharedRace, "selective_scan_gated", func(d *draw) kernels.Call { return gatedOf(d, 70) }},
		{"scan_wait", ptx.Unwritten, "selective_scan_gated", func(d *draw) kernels.Call { return gatedOf(d, 70) }},
		{"each_bound", ptx.OutOfBounds, "selective_scan_gated", func(d *draw) kernels.Call { return gatedOf(d, 1) }},
		{"ssd_wait", ptx.Unwritten, "ssd_scan", func(d *draw) kernels.Call { return scanOf(d, 70) }},
		{"split_barrier", ptx.Unwritten, "ssd_scan", func(d *draw) kernels.Call { return scanOf(d, 70) }},
		{"delta_solve", ptx.SharedRace, "delta_scan", func(d *draw) kernels.Call { return deltaOf(d, 70) }},
		{"delta_barrier", ptx.SharedRace, "delta_scan", func(d *draw) kernels.Call { return deltaOf(d, 70) }},
		{"delta_pairs", ptx.SharedRace, "delta_scan", func(d *draw) kernels.Call { return deltaRowsOf(d, 70) }},
		{"product_barrier", ptx.Unwritten, "norm_matmul", func(d *draw) kernels.Call {
			return call(graph.Attrs{"eps": 0.5}, one(d.packed(graph.F32, 1, 5)), d.packed(graph.F32, 1, 600), d.packed(graph.F32, 600), d.packed(graph.F32, 5, 600))
		}},
		{"stage_barrier", ptx.Unwritten, "matmul", tileOf},
		{"stage_wait", ptx.Unwritten, "matmul", tileOf},
		{"few_barrier", ptx.SharedRace, "matmul", func(d *draw) kernels.Call { return productOf(d, 8, 30, 72) }},
		{"slice_fence", ptx.GlobalRace, "matmul", func(d *draw) kernels.Call { return productOf(d, 20, 30, 520) }},
		{"warp_sync", ptx.SharedRace, "ssd_scan", func(d *draw) kernels.Call { return scanOf(d, 5) }},
		{"row_bound", ptx.OutOfBounds, "conv1d", func(d *draw) kernels.Call { return convOf(d, 1) }},
		{"block_race", ptx.GlobalRace, "conv1d", func(d *draw) kernels.Call { return convOf(d, 40) }},
		{"sums_barrier", ptx.Unwritten, "segment_sums", func(d *draw) kernels.Call {
			return call(nil, one(d.packed(graph.F32, 1, 40)), d.packed(graph.F32, 70, 40), segment(d, 70))
		}},
		{"part_barrier", ptx.GlobalRace, "conv_states", func(d *draw) kernels.Call {
			state := d.packed(graph.F32, 1, 50, 3)
			return call(nil, []kernels.Tensor{d.packed(graph.F32, 2, 50, 3), state}, d.packed(graph.F32, 2, 50, 3), state, segment(d, 1))
		}},
		{"passing_barrier", ptx.Unwritten, "delta_states", func(d *draw) kernels.Call {
			state, x := d.packed(graph.F32, 1, 1, 40, 8), func(cols int) kernels.Tensor { return d.packed(graph.F32, 2, 1, 40, cols) }
			return call(nil, []kernels.Tensor{x(8), state}, x(40), x(8), state, segment(d, 70))
		}},
		{"unwritten", ptx.Unwritten, "sumsq", func(d *draw) kernels.Call {
			return call(nil, one(d.packed(graph.F32, 2)), d.packed(graph.F32, 2, 100))
		}},
		{"vector", ptx.Misaligned, "silu", func(d *draw) kernels.Call { return siluOf(d, 30) }},
		{"stale", ptx.ReadOnly, "silu", func(d *draw) kernels.Call { return siluOf(d, 30) }},
	} {
		if few && i%3 != 0 {
			continue
		}
		t.Run(c.bug, func(t *testing.T) {
			m, err := ptx.Parse(c.bug, plantedBug(t, c.bug))
			if err != nil {
				t.Fatal(err)
			}
			dev := newInterpreter(t)
			d := &draw{rng: newRand(1), past: make([]int, slots)}
			on := c.call(d)
			offset := 1
			if c.op == "matmul" || c.bug == "ssd_wait" || c.bug == "split_barrier" || c.bug == "each_bound" { // on tensor cores; by 16 bytes at a time
				offset = 0
			}
			there := dev.deviceCall(findOp(t, c.op), &on, map[int]Tensor{}, func() int { return offset })
			if c.kind == ptx.ReadOnly {
				there.Results[0].Ptr = there.Args[0].Ptr // in place
			}
			launches := dev.plan(findOp(t, c.op), there)
			at := len(launches) - 1 // of several, the last with a copy has the bug
			has := func(l Launch) bool { _, ok := m.Entry(l.Function); return ok }
			for at >= 0 && !has(launches[at]) {
				at--
			}
			if at < 0 {
				t.Fatalf("there is no copy of %s", launches[0].Function)
			}
			dev.run(launches[:at], 0)
			l := launches[at]
			e, _ := m.Entry(l.Function)
			err = e.Run(context.Background(), dev.mem.(*interpreted).Memory, launchOf(l, 0))
			var fault *ptx.Fault
			if !errors.As(err, &fault) || fault.Kind != c.kind {
				t.Errorf("got %v, want a fault of kind %s", err, c.kind)
			}
			dev.run(launches, 0)
		})
	}
}

// plantedBug is the PTX of a kernel with a mistake, which build.sh has made.
func plantedBug(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "bugs", name+".ptx.xz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := xz.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTooLarge: launches that a GPU of the table would refuse, or that are beyond its
// shared memory.
func TestTooLarge(t *testing.T) {
	e, err := kernel{module: "norm", function: "rmsnorm"}.entry()
	if err != nil || Registers("norm", "rmsnorm", [2]int{9, 0}) == 0 {
		t.Fatal("there is no rmsnorm, or no registers of it", err)
	}
	for what, c := range map[string]struct {
		l    ptx.Launch
		want string
	}{
		"registers": {ptx.Launch{Block: [3]int{1024, 1, 1}, Registers: 65}, "blocks of 1024 threads of 65 registers take 73728; a multiprocessor has 65536"},
		"enough":    {ptx.Launch{Block: [3]int{1024, 1, 1}, Registers: 64}, "of parameters"},
		"shared":    {ptx.Launch{Block: [3]int{128, 1, 1}, Shared: 100 << 10, MaxShared: 99 << 10}, "at most 101376 are possible"},
		"more":      {ptx.Launch{Block: [3]int{128, 1, 1}, Shared: 227 << 10}, "at most 232448 are possible"},
		"grid":      {ptx.Launch{Block: [3]int{128, 1, 1}, Grid: [3]int{1, 65536, 1}}, "65535 in y and z"},
		"threads":   {ptx.Launch{Block: [3]int{1, 1, 65}}, "64 in z"},
	} {
		if c.l.Grid == [3]int{} {
			c.l.Grid = [3]int{1, 1, 1}
		}
		var fault *ptx.Fault
		if err := e.Run(context.Background(), ptx.NewMemory(1), c.l); !errors.As(err, &fault) || fault.Kind != ptx.BadLaunch || !strings.Contains(fault.Text, c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// productOf is a product of some rows on tensor cores.
func productOf(d *draw, rows, n, k int) kernels.Call {
	return call(nil, one(d.packed(graph.F32, rows, n)), d.packed(graph.F32, rows, k), d.packed(graph.BF16, n, k))
}

// tileOf is one of more rows than stream weights.
func tileOf(d *draw) kernels.Call { return productOf(d, 40, 30, 520) }

// siluOf is silu of a row.
func siluOf(d *draw, cols int) kernels.Call {
	return call(nil, one(d.packed(graph.F32, 1, cols)), d.packed(graph.F32, 1, cols))
}

// scanOf is ssd_scan of one sequence.
func scanOf(d *draw, tokens int) kernels.Call {
	state := d.packed(graph.F32, slots, 2, 32, 16)
	dt, a := d.packed(graph.F32, tokens, 2), d.packed(graph.F32, 2)
	d.fill(&dt, positive)
	d.fill(&a, negative)
	y := d.packed(graph.F32, tokens, 64)
	return call(nil, []kernels.Tensor{y, state}, d.packed(graph.F32, tokens, 64), dt, a, d.packed(graph.F32, tokens, 16), d.packed(graph.F32, tokens, 16), state, segment(d, tokens))
}

// deltaOf is delta_scan of one sequence, with a decay per head.
func deltaOf(d *draw, tokens int) kernels.Call {
	x := func(cols int) kernels.Tensor { return d.packed(graph.F32, tokens, cols) }
	state, g := d.packed(graph.F32, slots, 2, 16, 32), x(2)
	d.fill(&g, negative)
	return call(graph.Attrs{"scale": 0.5}, []kernels.Tensor{x(64), state}, x(16), x(16), x(64), g, x(2), state, segment(d, tokens))
}

// deltaRowsOf is delta_scan of one sequence, with a decay per row of a head's state.
func deltaRowsOf(d *draw, tokens int) kernels.Call {
	c := deltaOf(d, tokens)
	c.Args[3] = d.packed(graph.F32, tokens, 2*16)
	d.fill(&c.Args[3], negative)
	return c
}

// gatedOf is selective_scan_gated of one sequence.
func gatedOf(d *draw, tokens int) kernels.Call {
	state, a := d.packed(graph.F32, slots, 40, 16), d.packed(graph.F32, 40, 16)
	d.fill(&a, negative)
	x := func() kernels.Tensor { return d.packed(graph.F32, tokens, 40) }
	return call(nil, []kernels.Tensor{x(), state}, x(), x(), d.packed(graph.F32, 40), a, d.packed(graph.F32, tokens, 16), d.packed(graph.F32, tokens, 16),
		d.packed(graph.F32, 40), x(), state, segment(d, tokens))
}

// convOf is conv1d of one sequence, in a state with one slot.
func convOf(d *draw, tokens int) kernels.Call {
	state := d.packed(graph.F32, 1, 5, 2)
	return call(nil, []kernels.Tensor{d.packed(graph.F32, tokens, 5), state}, d.packed(graph.F32, tokens, 5), d.packed(graph.F32, 5, 3), state, segment(d, tokens))
}

func segment(d *draw, tokens int) kernels.Tensor {
	seg := d.packed(graph.I32, 1, 3)
	seg.I32[1] = int32(tokens)
	return seg
}

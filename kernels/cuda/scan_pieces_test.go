package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/kernels"
	"pgregory.net/rapid"
)

// pieceLens are lengths of segments around those of pieces, ssdLens likewise for pieces of 64 and
// 128.
var pieceLens, ssdLens = []int{0, 1, 5, 127, 128, 129, 256, 257, 300}, []int{0, 1, 5, 63, 64, 65, 129}

// shortSegments runs f with segments scanned in pieces however short they are.
func shortSegments(f func()) {
	was, wasPiece, wasFull := scanPieces, ssdPiece, scanFull
	defer func() { scanPieces, ssdPiece, scanFull = was, wasPiece, wasFull }()
	scanPieces, ssdPiece, scanFull = 0, 64, math.MaxInt
	f()
}

// inPieces reports whether segments are scanned in pieces.
func inPieces(launches []Launch) bool {
	return slices.ContainsFunc(launches, func(l Launch) bool { return strings.HasSuffix(l.Function, "_scan_starts") })
}

// pieceTokens is how many tokens a piece has in these tests.
func pieceTokens(name string) int {
	if strings.HasPrefix(name, "ssd") {
		return 64
	}
	return scanPiece
}

// drawPieces is a call of a scan of several tokens a sequence.
func drawPieces(d *draw, name string) func() kernels.Call {
	d.decode, d.lens, d.most = false, pieceLens, 3
	gated := strings.HasSuffix(name, "_gated")
	if strings.HasPrefix(name, "ssd") {
		return drawSSDPieces(d, gated)
	}
	next := selectiveOf(d, d.pick("n", 1, 3, 4, 16, 16))
	if gated {
		return gatedCase(d, next, nil)
	}
	return next
}

// drawSSDPieces has mostly steps so short that something is left of a state at the end of a piece.
func drawSSDPieces(d *draw, gated bool) func() kernels.Call {
	d.lens, d.most = ssdLens, 2
	next := ssdOf(d, d.pick("p", 1, 8, 8, 40), d.pick("n", 3, 8, 20, 136))
	short := func(v float64) float64 { return math.Abs(v) / 100 }
	if gated {
		next = gatedCase(d, next, graph.Attrs{"min": 0.0, "max": math.Inf(1)})
		short = func(v float64) float64 { return v - 5 }
	}
	if d.pick("steps", 0, 1, 1) == 0 {
		return next
	}
	return func() kernels.Call {
		c := next()
		d.fill(&c.Args[1], short)
		return c
	}
}

var piecesOps = []string{"selective_scan", "selective_scan_gated", "ssd_scan", "ssd_scan_gated"}

// TestScanPieces: segments that are scanned in pieces give what the reference gives, and leave its
// states, whatever their lengths, formats and places. By default scans with what is fused with them
// are drawn.
func TestScanPieces(t *testing.T) {
	few := goldens.Few(t)
	want := map[string][]string{
		"selective_scan": {"scan_%s.selective_scan_starts", "scan_%s.selective_scan_ends_16", "scan_%s.selective_scan_ends_16_bf16", "scan_%s.selective_scan_thread_16", "scan_%s.selective_scan_thread_16_bf16"},
		"ssd_scan": {"ssd_%s.ssd_scan_starts", "ssd_%s.ssd_scan_ends", "ssd_%s.ssd_scan_ends_16", "ssd_mma_%s.ssd_mma_ends_128", "ssd_mma_%s.ssd_mma_ends_256",
			"ssd_mma_%s.ssd_mma_ends_128_bf16", "ssd_mma_%s.ssd_mma_ends_256_bf16", "ssd_split_%s.ssd_split_ends"},
	}
	for _, name := range piecesOps {
		op := findOp(t, name)
		test := func(t *rapid.T) { shortSegments(func() { checkPieces(t, op) }) }
		if !few || strings.HasSuffix(name, "_gated") {
			check(t, "pieces", test)
		}
		for _, kernel := range want[strings.TrimSuffix(name, "_gated")] {
			until(t, test, fmt.Sprintf(kernel, "f32"), fmt.Sprintf(kernel, "bf16"))
		}
	}
}

func checkPieces(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	o, ssd := Options{Math: BF16}, strings.HasPrefix(op.Name, "ssd")
	if ssd {
		scanFull = d.pick("full", 0, math.MaxInt)
		o = Options{Math: Math(d.pick("math", 0, 1, 1)), Shared: d.pick("shared", 0, 99<<10)}
		if d.aligned = true; o.Math == F32 {
			d.aligned, o.Shared = d.pick("aligned", 0, 1) == 1, d.pick("shared", 0, 15<<10)
		}
	}
	next := drawPieces(d, op.Name)
	state := op.States[0]
	states := map[int]Tensor{}
	var held kernels.Tensor
	for batch := range 2 {
		c := next()
		if o.Math == BF16 && rapid.Bool().Draw(t, "bf16") {
			d.inBF16(op, &c)
		}
		on := dev.deviceCall(op, &c, states, d.offset)
		on.Options = o
		if batch == 0 {
			held = clone(&c.Args[state.Operand])
		}
		c.Args[state.Operand], c.Results[state.Result] = held, held
		share := roundedReference(op, &c, dev.compute(op, on, d.rng.Uint64()))
		for i := range c.Results {
			got := clone(&c.Results[i])
			dev.download(on.Results[i], &got)
			if share > 0 {
				same(t, "result", &got, &c.Results[i], share)
			} else {
				sameKept(t, &got, &c.Results[i], 1e-5)
			}
		}
		if share > 0 || states[state.Operand].DType != graph.F32 { // rounded apart, states would go on apart
			dev.write(states[state.Operand], &held)
		}
	}
}

// TestScanPiecesAlone: a sequence that is scanned in pieces does not depend on the rest of the
// batch, and one of a single piece has the bits of one that is scanned whole.
func TestScanPiecesAlone(t *testing.T) {
	for _, name := range piecesOps {
		op := findOp(t, name)
		check(t, "pieces", func(r *rapid.T) {
			d, dev := newDraw(r), newDevice(r)
			c := drawPieces(d, name)()
			whole, _ := once(r, op, &c, Options{}, map[int]Tensor{}, dev)
			shortSegments(func() { checkPiecesAlone(r, d, op, &c, dev, whole[0]) })
		})
	}
}

func checkPiecesAlone(t *rapid.T, d *draw, op *graph.Op, c *kernels.Call, dev *device, whole kernels.Tensor) {
	all, launches := once(t, op, c, Options{}, map[int]Tensor{}, dev)
	lo, hi, s := drawRows(d, op, c)
	part := tokensOf(op, c, lo, hi, s, 0)
	got, alone := once(t, op, &part, Options{}, map[int]Tensor{}, dev)
	want, plain := rowsOf(all[0], lo, hi), rowsOf(whole, lo, hi)
	what := fmt.Sprintf("tokens %d to %d", lo, hi)
	steps := slices.ContainsFunc(alone, func(l Launch) bool { return l.Function == "ssd_scan_steps" }) // whose sums are in another order
	if !steps && (inPieces(launches) == inPieces(alone) || hi-lo <= pieceTokens(op.Name)) {
		same(t, what, &got[0], &want, 0)
	}
	share := 1e-5
	if hi-lo <= pieceTokens(op.Name) {
		share = 0
	}
	same(t, what, &want, &plain, share)
}

// TestScanPiecesCut: how a prompt is cut changes its results and its state by no more than
// rounding, whether the batches are scanned in pieces or not.
func TestScanPiecesCut(t *testing.T) {
	goldens.CI(t)
	for _, name := range piecesOps {
		op := findOp(t, name)
		check(t, "pieces", func(t *rapid.T) { shortSegments(func() { checkPiecesCut(t, op) }) })
	}
}

func checkPiecesCut(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	next, piece := drawPieces(d, op.Name), pieceTokens(op.Name)
	d.most, d.lens = 1, []int{piece + 2, 2*piece + 4, 2*piece + 44}
	c := next()
	if c.Args[op.States[0].Operand].DType != graph.F32 {
		cutAndRounded(t, op, &c, dev)
		return
	}
	whole, cut := map[int]Tensor{}, map[int]Tensor{}
	all, _ := once(t, op, &c, Options{}, whole, dev)
	tokens := c.Results[0].Rows()
	at := d.pick("cut", 1, 2, piece-1, piece, piece+1)
	for _, span := range [][2]int{{0, at}, {at, tokens}} {
		part := tokensOf(op, &c, span[0], span[1], 0, span[0])
		got, _ := once(t, op, &part, Options{}, cut, dev)
		want := rowsOf(all[0], span[0], span[1])
		same(t, fmt.Sprint("tokens ", span), &got[0], &want, 1e-5)
	}
	i := op.States[0].Operand
	a, b := clone(&c.Args[i]), clone(&c.Args[i])
	dev.download(whole[i], &a)
	dev.download(cut[i], &b)
	same(t, "state", &b, &a, 1e-5)
}

// TestScanThreads: whole segments have the same bits, and leave the same states, by a thread for
// each channel as by four.
func TestScanThreads(t *testing.T) {
	defer func(was int) { scanEnough = was }(scanEnough)
	for _, name := range piecesOps[:2] {
		op := findOp(t, name)
		check(t, name, func(t *rapid.T) {
			d, dev := newDraw(t), newDevice(t)
			o, states := Options{Math: BF16}, [2]map[int]Tensor{{}, {}}
			c := drawPieces(d, name)()
			if rapid.Bool().Draw(t, "bf16") {
				d.inBF16(op, &c)
			}
			var results [2][]kernels.Tensor
			var launches [2][]Launch
			for i := range results {
				scanEnough = math.MaxInt * (1 - i)
				results[i], launches[i] = once(t, op, &c, o, states[i], dev)
				state := clone(&c.Args[op.States[0].Operand])
				dev.download(states[i][op.States[0].Operand], &state)
				results[i] = append(results[i], state)
			}
			four, one := "selective_scan_16", "selective_scan_thread_16"
			if hasKernel(launches[0], one) || hasKernel(launches[0], four) != hasKernel(launches[1], one) {
				t.Fatalf("by four threads: %v, by one: %v", launches[0], launches[1])
			}
			for i := range results[0] {
				same(t, "result or state", &results[1][i], &results[0][i], 0)
			}
		})
	}
}

// hasKernel reports whether a kernel whose name begins so is among the launches.
func hasKernel(list []Launch, name string) bool {
	return slices.ContainsFunc(list, func(l Launch) bool { return strings.HasPrefix(l.Function, name) })
}

// planned is the launches of an operation, by their grids, and checks the scratch that they use.
func planned(t *testing.T, op string, call *Call, scratch func(launches []Launch) int64) string {
	t.Helper()
	launches, err := Kernels[op].Launches(call)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range launches {
		got = append(got, fmt.Sprintf("%s (%d,%d,%d)", l.Function, l.Grid[0], l.Grid[1], l.Grid[2]))
	}
	if got, want := Kernels[op].Scratch(call), scratch(launches); got != want {
		t.Errorf("%v: %d bytes of scratch, want %d", launches, got, want)
	}
	return strings.Join(got, " ")
}

// TestScanPiecesPlan: what is scanned in pieces is decided by numbers of sequences, tokens,
// channels and states.
func TestScanPiecesPlan(t *testing.T) {
	for _, c := range []struct {
		sequences, tokens, channels, states int
		want                                string
	}{
		{1, 2048, 1536, 16, "ends_16 (16,24,1) starts (1,192,1) thread_16 (16,24,1)"}, // mamba-130m
		{1, 2048, 5120, 16, "ends_16 (16,80,1) starts (1,640,1) thread_16 (16,80,1)"}, // mamba-2.8b
		{1, 1024, 192, 16, "ends_16 (8,3,1) starts (1,24,1) thread_16 (8,3,1)"},
		{1, 1023, 192, 16, "16 (1,6,1)"},
		{2, 2047, 128, 16, "16 (2,4,1)"},
		{2, 2048, 128, 16, "ends_16 (17,2,1) starts (2,16,1) thread_16 (17,2,1)"},
		{6, 12288, 5120, 16, "ends_16 (101,80,1) starts (6,640,1) thread_16 (101,80,1)"},
		{7, 14336, 5120, 16, "thread_16 (7,80,1)"},
		{6, 96, 5120, 16, "16 (6,160,1)"},
		{7, 112, 5120, 16, "thread_16 (7,80,1)"},
		{1, 512, 192, 17, "32 (1,6,1)"},
		{512, 512, 64, 16, "each (128,2,1)"},
	} {
		rows := func(cols int) Tensor { return Tensor{Tensor: shaped(graph.F32, c.tokens, cols)} }
		x, state := rows(c.channels), Tensor{Tensor: shaped(graph.F32, slots, c.channels, c.states)}
		call := &Call{Args: []Tensor{x, x, {Tensor: shaped(graph.F32, c.channels, c.states)}, rows(c.states), rows(c.states), state, {Tensor: shaped(graph.I32, c.sequences, 3)}},
			Results: []Tensor{x, state}}
		got := planned(t, "selective_scan", call, func(launches []Launch) int64 {
			if len(launches) == 1 {
				return 0
			}
			return 4 * int64(launches[0].Grid[0]) * int64(c.channels*(c.states+1))
		})
		if got = strings.ReplaceAll(got, "selective_scan_", ""); got != c.want {
			t.Errorf("%d sequences of %d tokens, %d channels of %d states: %s, want %s", c.sequences, c.tokens, c.channels, c.states, got, c.want)
		}
	}
}

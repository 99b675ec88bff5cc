package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
	"github.com/krait-ml/krait/kernels/reference"
	"pgregory.net/rapid"
)

// pieceLens are lengths of segments around those of pieces.
var pieceLens = []int{0, 1, 5, 127, 128, 129, 256, 257, 300}

// shortSegments lets segments be scanned in pieces however short they are.
func shortSegments(t *testing.T) {
	was := scanPieces
	scanPieces = 0
	t.Cleanup(func() { scanPieces = was })
}

// inPieces reports whether segments are scanned in pieces.
func inPieces(launches []Launch) bool {
	return slices.ContainsFunc(launches, func(l Launch) bool { return l.Function == "selective_scan_starts" })
}

// drawPieces is a call of a selective scan of several tokens a sequence.
func drawPieces(d *draw, name string) func() kernels.Call {
	next := selectiveOf(d, d.pick("n", 1, 3, 4, 16, 16))
	d.decode, d.lens, d.most = false, pieceLens, 3
	if name == "selective_scan_gated" {
		return gatedCase(d, next, nil)
	}
	return next
}

var piecesOps = []string{"selective_scan", "selective_scan_gated"}

// TestScanPieces: segments that are scanned in pieces give what the reference gives, and leave its states,
// whatever their lengths, formats and places.
func TestScanPieces(t *testing.T) {
	shortSegments(t)
	for _, name := range piecesOps {
		op := findOp(t, name)
		test := func(t *rapid.T) { checkPieces(t, op) }
		check(t, name, test)
		until(t, test, "scan_f32.selective_scan_starts", "scan_bf16.selective_scan_starts", "scan_f32.selective_scan_ends_16", "scan_bf16.selective_scan_ends_16",
			"scan_f32.selective_scan_ends_16_bf16", "scan_bf16.selective_scan_ends_16_bf16")
	}
}

func checkPieces(t *rapid.T, op *graph.Op) {
	d, dev := newDraw(t), newDevice(t)
	next := drawPieces(d, op.Name)
	state := op.States[0]
	states := map[int]Tensor{}
	var held kernels.Tensor
	for batch := range 2 {
		c := next()
		if rapid.Bool().Draw(t, "bf16") {
			d.inBF16(op, &c)
		}
		on := dev.deviceCall(op, &c, states, d.offset)
		on.Options.Math = BF16
		if batch == 0 {
			held = clone(&c.Args[state.Operand])
		}
		c.Args[state.Operand], c.Results[state.Result] = held, held
		dev.compute(op, on, d.rng.Uint64())
		k := reference.Kernels[op.Name]
		k.Run(&c, 0, 1)
		for i := range c.Results {
			got := clone(&c.Results[i])
			dev.download(on.Results[i], &got)
			sameKept(t, &got, &c.Results[i], 1e-5)
		}
		if states[state.Operand].DType != graph.F32 { // rounded apart, states would go on apart
			dev.write(states[state.Operand], &held)
		}
	}
}

// TestScanPiecesAlone: a sequence that is scanned in pieces does not depend on the rest of the batch, and one of a
// single piece has the bits of one that is scanned whole.
func TestScanPiecesAlone(t *testing.T) {
	for _, name := range piecesOps {
		op := findOp(t, name)
		checkAgain(t, name, func(r *rapid.T) {
			d, dev := newDraw(r), newDevice(r)
			c := drawPieces(d, name)()
			whole, _ := once(r, op, &c, Options{}, map[int]Tensor{}, dev)
			func() {
				was := scanPieces
				scanPieces = 0
				defer func() { scanPieces = was }()
				checkPiecesAlone(r, d, op, &c, dev, whole[0])
			}()
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
	if inPieces(launches) == inPieces(alone) || hi-lo <= scanPiece {
		same(t, what, &got[0], &want, 0)
	}
	share := 1e-5
	if hi-lo <= scanPiece {
		share = 0
	}
	same(t, what, &want, &plain, share)
}

// TestScanPiecesCut: how a prompt is cut changes its results and its state by no more than rounding, whether
// the batches are scanned in pieces or not.
func TestScanPiecesCut(t *testing.T) {
	shortSegments(t)
	for _, name := range piecesOps {
		op := findOp(t, name)
		checkAgain(t, name, func(t *rapid.T) {
			d, dev := newDraw(t), newDevice(t)
			next := drawPieces(d, name)
			d.most, d.lens = 1, []int{130, 260, 300}
			c := next()
			if c.Args[op.States[0].Operand].DType != graph.F32 {
				cutAndRounded(t, op, &c, dev)
				return
			}
			whole, cut := map[int]Tensor{}, map[int]Tensor{}
			all, _ := once(t, op, &c, Options{}, whole, dev)
			tokens := c.Results[0].Rows()
			at := d.pick("cut", 1, 2, 127, 128, 129)
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
		})
	}
}

// TestScanPiecesPlan: what is scanned in pieces is decided by numbers of sequences, tokens, channels and states.
func TestScanPiecesPlan(t *testing.T) {
	for _, c := range []struct {
		sequences, tokens, channels, states int
		want                                string
	}{
		{1, 512, 1536, 16, "ends_16 (5,48,1) starts (1,192,1) 16 (5,48,1)"},    // mamba-130m
		{1, 2048, 1280, 16, "ends_16 (17,40,1) starts (1,160,1) 16 (17,40,1)"}, // mamba-2.8b on 4 ranks
		{1, 2048, 5120, 16, "16 (1,160,1)"},                                    // mamba-2.8b
		{1, 2048, 2432, 16, "ends_16 (17,76,1) starts (1,304,1) 16 (17,76,1)"},
		{1, 2048, 2433, 16, "16 (1,77,1)"},
		{1, 511, 1536, 16, "16 (1,48,1)"},
		{2, 1023, 512, 16, "16 (2,16,1)"},
		{2, 1024, 512, 16, "ends_16 (10,16,1) starts (2,64,1) 16 (10,16,1)"},
		{2, 2048, 1536, 16, "16 (2,48,1)"},
		{1, 512, 1536, 17, "32 (1,48,1)"},
		{512, 512, 64, 16, "steps (512,2,1)"},
	} {
		rows := func(cols int) Tensor { return Tensor{Tensor: shaped(graph.F32, c.tokens, cols)} }
		x, state := rows(c.channels), Tensor{Tensor: shaped(graph.F32, slots, c.channels, c.states)}
		call := &Call{Args: []Tensor{x, x, {Tensor: shaped(graph.F32, c.channels, c.states)}, rows(c.states), rows(c.states), state, {Tensor: shaped(graph.I32, c.sequences, 3)}},
			Results: []Tensor{x, state}}
		launches, err := Kernels["selective_scan"].Launches(call)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range launches {
			got = append(got, fmt.Sprintf("%s (%d,%d,%d)", strings.TrimPrefix(l.Function, "selective_scan_"), l.Grid[0], l.Grid[1], l.Grid[2]))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%d sequences of %d tokens, %d channels of %d states: %s, want %s", c.sequences, c.tokens, c.channels, c.states, got, c.want)
		}
		scratch := int64(0)
		if len(launches) > 1 {
			scratch = 4 * int64(launches[0].Grid[0]) * int64(c.channels*(c.states+1))
		}
		if got := Kernels["selective_scan"].Scratch(call); got != scratch {
			t.Errorf("%d sequences of %d tokens: %d bytes of scratch, want %d", c.sequences, c.tokens, got, scratch)
		}
	}
}

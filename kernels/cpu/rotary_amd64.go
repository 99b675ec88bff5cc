package cpu

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/krait-ml/krait/kernels"
)

// Of both sets, the same: angles are in f64, of which AVX2 takes enough.
var (
	_ = kernels.Register(avx2, kernels.Set{"rotary": {Units: kernels.RowUnits, Run: rotaryAVX2}})
)

// turns are the angles of a token, per position, and its sines and cosines.
type turns struct {
	theta    float64
	dims     int
	freq     []float64 // of pairs, padded to a multiple of 4
	sin, cos []float32
}

// turning keeps the angles, as models have a few kinds at most, and memory.
var (
	turning     = sync.Pool{New: func() any { return new(turns) }}
	lastTurning atomic.Pointer[turns]
)

// set makes the angles, or takes those of the launch before.
func (r *turns) set(theta float64, dims int) {
	if last := lastTurning.Load(); r.theta != theta || r.dims != dims {
		if last == nil || last.theta != theta || last.dims != dims {
			last = &turns{theta: theta, dims: dims, freq: make([]float64, (dims/2+3)&^3)}
			for j := range dims / 2 {
				last.freq[j] = math.Pow(theta, -2*float64(j)/float64(dims))
			}
			lastTurning.Store(last)
		}
		r.theta, r.dims, r.freq = theta, dims, last.freq
	}
	sized(&r.sin, len(r.freq))
	sized(&r.cos, len(r.freq))
}

// rotaryAVX2 is rotary. A unit is a token.
func rotaryAVX2(c *kernels.Call, lo, hi int) {
	x, seg, past, y := &c.Args[0], &c.Args[1], c.Args[2].I32, &c.Results[0]
	r := turning.Get().(*turns)
	defer turning.Put(r)
	r.set(c.Attrs.Float("theta"), c.Attrs.Int("dims"))
	for s := range seg.Rows() {
		start, tokens, _ := seg.Segment(s)
		here, end, row := y.Here(start, tokens)
		for i := max(lo, row); i < min(hi, row+end-here); i++ {
			r.turn(y.Row(i), x.Row(i), int(past[s])+here+i-row, x.Unit)
		}
	}
}

// turn turns a token's heads, of unit channels.
func (r *turns) turn(out, in []float32, position, unit int) {
	half := r.dims / 2
	if r.dims < unit || half == 0 {
		copy(out, in)
	}
	if half == 0 || len(in) == 0 {
		return
	}
	r.angles(float64(position))
	if half%8 == 0 {
		turnAVX2(&out[0], &in[0], &r.sin[0], &r.cos[0], len(in)/unit, unit, half)
		return
	}
	for at := 0; at < len(in); at += unit {
		for j := range half {
			a, b := in[at+j], in[at+j+half]
			out[at+j], out[at+j+half] = a*r.cos[j]-b*r.sin[j], b*r.cos[j]+a*r.sin[j]
		}
	}
}

func (r *turns) angles(position float64) {
	if r.theta >= 1 { // or angles may be too many turns for integers
		anglesAVX2(&r.sin[0], &r.cos[0], &r.freq[0], position, len(r.freq))
		return
	}
	for j, f := range r.freq {
		sin, cos := math.Sincos(position * f)
		r.sin[j], r.cos[j] = float32(sin), float32(cos)
	}
}

package ptx

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// waiting writes 7 to x, counts n, waits until flag is 3, by loads of an order, and writes what it
// then has of x to y.
const waiting = `.version 7.8
.target sm_80
.address_size 64
.visible .entry waiting(.param .u64 x, .param .u64 y, .param .u64 n, .param .u64 flag)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %d<6>;
	ld.param.u64 %d1, [x];
	ld.param.u64 %d2, [y];
	ld.param.u64 %d3, [n];
	ld.param.u64 %d4, [flag];
	mov.u32 %r1, 7;
	st.global.u32 [%d1], %r1;
	atom.global.add.u32 %r2, [%d3], 1;
again:
	ld.acquire.sys.global.u32 %r3, [%d4];
	setp.ne.u32 %p1, %r3, 3;
	@%p1 bra again;
	ld.global.u32 %r4, [%d1];
	st.global.u32 [%d2], %r4;
	st.release.sys.global.u32 [%d4], %r1;
	ret;
}`

// TestWaits: a launch that waits for another device is taken back, byte by byte, also bytes never
// written before; when the flag is there it runs, and says what it has acquired and released.
func TestWaits(t *testing.T) {
	r := newRig(t)
	e := entry(t, parse(t, waiting), "waiting")
	x, y, n, flag := r.put([]uint32{1}), r.alloc(4), r.put([]uint32{5}), r.put([]uint32{2})
	var peers Peers
	launch := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Peers: &peers, Params: params(t, e, x, y, n, flag)}
	z := r.alloc(4) // as x, not written
	for _, at := range []uint64{x, z} {
		launch.Params = params(t, e, at, y, n, flag)
		for range 2 {
			var fault *Fault
			if err := r.launch(e, launch); !errors.As(err, &fault) || fault.Kind != Waits || !strings.Contains(err.Error(), "waits for another device at") {
				t.Fatal(err)
			}
		}
	}
	if got := append(r.u32(x), r.u32(n)...); !slices.Equal(got, []uint32{1, 5}) {
		t.Errorf("after what was taken back there is %v", got)
	}
	for _, at := range []uint64{y, z} {
		if err := r.mem.Read(at, make([]byte, 4)); err == nil {
			t.Error("what was not written is")
		}
	}
	if err := r.mem.Write(flag, []byte{3, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	launch.Params = params(t, e, x, y, n, flag)
	if err := r.launch(e, launch); err != nil {
		t.Fatal(err)
	}
	if got := slices.Concat(r.u32(x), r.u32(y), r.u32(n)); !slices.Equal(got, []uint32{7, 7, 6}) {
		t.Errorf("there is %v", got)
	}
	if !slices.Equal(peers.Acquired, []uint64{flag}) || !slices.Equal(peers.Released, []uint64{flag}) || !peers.Signals() {
		t.Errorf("%+v", peers)
	}
	peers.Reaches = func(at uint64) string {
		if at == y {
			return "which is far away"
		}
		return ""
	}
	r.mem.Write(flag, []byte{3, 0, 0, 0})
	if err := r.launch(e, launch); err == nil || !strings.Contains(err.Error(), "writes 4 bytes at") || !strings.Contains(err.Error(), "far away") {
		t.Error(err)
	}
}

func (r rig) u32(at uint64) []uint32 {
	v := make([]uint32, 1)
	r.get(at, v)
	return v
}

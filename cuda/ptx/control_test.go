package ptx

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestBranchTable: brx.idx sends each lane its own way, and they meet again.
func TestBranchTable(t *testing.T) {
	o := operation{`{ bra START;
T: .branchtargets A, B, C, B;
START: and.b32 %c, %x, 3; mov.u32 %z, 0;
brx.idx %c, T;
A: add.u32 %z, %z, 1; bra.uni END;
B: add.u32 %z, %z, 10; bra.uni END;
C: add.u32 %z, %z, 100;
END: shfl.sync.bfly.b32 %z, %z, 1, 31, -1; }`, 32, 32, 0, 0}
	for l, got := range perLane(t, o, func(l int) uint64 { return uint64(l) }) {
		if want := []uint64{10, 1, 10, 100}[l%4]; got != want {
			t.Errorf("lane %d gets %d, want %d", l, got, want)
		}
	}
}

// TestGuards: instructions of all kinds under a guard that splits the warp.
func TestGuards(t *testing.T) {
	text := header + `.func (.param .b32 r) twice(.param .b32 x) {
.reg .b32 %r<3>; .reg .pred %p<2>;
ld.param.b32 %r1, [x]; setp.gt.u32 %p1, %r1, 25; @%p1 bra BIG;
add.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret;
BIG: st.param.b32 [r+0], 0; ret.uni; }
.visible .entry k(.param .u64 out) {
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<3>;
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; ld.param.u64 %d1, [out]; mad.wide.u32 %d1, %r1, 4, %d1;
mov.u32 %r3, %r1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; st.param.b32 [b], 5;
@%p1 call.uni (b), twice, (a);
ld.param.b32 %r3, [b]; }
@!%p1 bar.sync 0; @%p1 bar.sync 0; // on one line, which makes them one barrier
@%p1 shfl.sync.idx.b32 %r4, %r1, 3, 31, 0xaaaaaaaa;
@!%p1 mov.u32 %r4, 50;
@%p1 st.global.u32 [%d1], %r3;
@%p1 exit;
add.u32 %r3, %r3, %r4; st.global.u32 [%d1], %r3; ret; }`
	r := newRig(t)
	out := r.alloc(4 * 64)
	r.mustRun(entry(t, parse(t, text), "k"), 1, 64, out)
	got := make([]uint32, 64)
	r.get(out, got)
	for i, v := range got {
		want := uint32(55)
		switch {
		case i%2 == 1 && i > 25:
			want = 0
		case i%2 == 1:
			want = uint32(2 * i)
		}
		if v != want {
			t.Errorf("thread %d has %d, want %d", i, v, want)
		}
	}
}

// TestDependent: in a launch that overlaps with the one before, each thread waits before it touches
// global memory by any instruction but loads by .nc, and before it ends.
func TestDependent(t *testing.T) {
	const wait = "griddepcontrol.wait;"
	for _, c := range []struct{ text, fault string }{
		{wait + "ld.global.u32 %r2, [%d1]; st.global.u32 [%d1], %r2;", ""},
		{"st.shared.u32 [s], %r1; ld.shared.u32 %r2, [s];" + wait, ""},
		{"mov.u32 %r1, 1;", "ends without"},
		{"@%p1 exit;" + wait, "ends without"},
		{"@%p1 " + wait + "ld.global.u32 %r2, [%d1];" + wait, "before griddepcontrol.wait"},
		{"ld.global.u32 %r2, [%d1];" + wait, "before griddepcontrol.wait"},
		{"ld.u32 %r2, [%d1];" + wait, "before griddepcontrol.wait"},
		{"st.global.u32 [%d1], 1;" + wait, "before griddepcontrol.wait"},
		{"atom.global.add.u32 %r2, [%d1], 1;" + wait, "before griddepcontrol.wait"},
		{"cp.async.ca.shared.global [s], [%d1], 4; cp.async.wait_all;" + wait, "before griddepcontrol.wait"},
		{"ld.global.nc.u32 %r2, [%d1];" + wait, ""},
		{"cp.async.cg.shared.global [s], [%d1], 16; cp.async.wait_all;" + wait, ""},
		{wait + "@!%p1 st.global.u32 [%d1+4], 1; ld.global.nc.u32 %r2, [%d1];", "by .nc"},
	} {
		body := ".shared .align 16 .b8 s[16]; mov.u32 %r1, 3; ld.param.u64 %d1, [in]; mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0;\n" + c.text
		e := entry(t, parse(t, kernel(".param .u64 in", body)), "k")
		for _, threads := range []int{1, 2} {
			if threads == 1 && strings.Contains(c.text, "@%p1") {
				continue // no thread is guarded away
			}
			r := newRig(t)
			in := r.put([]uint32{5, 7, 9, 11})
			l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{threads, 1, 1}, Params: params(t, e, in)}
			if err := e.Run(t.Context(), r.mem, l); err != nil && threads == 1 {
				t.Errorf("%s: %v, where nothing overlaps", c.text, err)
			}
			l.Dependent = true
			err := e.Run(t.Context(), r.mem, l)
			var fault *Fault
			switch {
			case c.fault == "" && threads == 1 && err != nil:
				t.Errorf("%s: %v", c.text, err)
			case c.fault != "" && (!errors.As(err, &fault) || fault.Kind != NotAwaited || !strings.Contains(fault.Text, c.fault)):
				t.Errorf("%s, %d threads: %v, want %q", c.text, threads, err, c.fault)
			}
		}
	}
}

// TestTarget: a module says which devices it is for, and has no instruction that these lack.
func TestTarget(t *testing.T) {
	text := kernel("", "griddepcontrol.wait;")
	if m := parse(t, text); m.Target() != 90 {
		t.Errorf("the module is for %d, want 90", m.Target())
	}
	for target, want := range map[string]string{"sm_80": "griddepcontrol.wait needs .target sm_90; the module is for sm_80", "compute": "target compute is not understood"} {
		if _, err := Parse("m", strings.Replace(text, "sm_90", target, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("for %s: %v, want %q", target, err, want)
		}
	}
}

// TestEarlyCopies: what a launch has written is copied after griddepcontrol.wait only, past
// whatever cache; what none has, also before.
func TestEarlyCopies(t *testing.T) {
	const begin, copied, wait = ".shared .align 16 .b8 s[16]; ld.param.u64 %d1, [in];\n",
		"cp.async.cg.shared.global [s], [%d1], 16; cp.async.wait_all;", "griddepcontrol.wait;"
	r := newRig(t)
	in := r.put([]uint32{5, 7, 9, 11})
	run := func(body string) error {
		e := entry(t, parse(t, kernel(".param .u64 in", begin+body)), "k")
		return e.Run(t.Context(), r.mem, Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: params(t, e, in), Dependent: true})
	}
	for _, body := range []string{copied + wait, wait + "st.global.u32 [%d1+8], 1;", wait + copied} {
		if err := run(body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	var fault *Fault
	if err := run(copied + wait); !errors.As(err, &fault) || fault.Kind != NotAwaited || !strings.Contains(fault.Text, "copies what a launch has written") {
		t.Errorf("a copy of what a launch has written: %v", err)
	}
}

// TestDependence: griddepcontrol changes nothing where launches do not overlap, and
// orders nothing between threads.
func TestDependence(t *testing.T) {
	const body = "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [out]; griddepcontrol.launch_dependents; mad.wide.u32 %d2, %r1, 4, %d1;\n"
	r := newRig(t)
	out := r.put([]uint32{5, 7})
	text := body + "ld.global.u32 %r2, [%d2]; @%p0 griddepcontrol.wait; griddepcontrol.wait; add.u32 %r2, %r2, 1; st.global.u32 [%d2], %r2;"
	r.mustRun(entry(t, parse(t, kernel(".param .u64 out", text)), "k"), 1, 2, out)
	got := make([]uint32, 2)
	if r.get(out, got); got[0] != 6 || got[1] != 8 {
		t.Errorf("got %d, want 6 and 8", got)
	}
	text = body + "st.global.u32 [%d2], %r1; griddepcontrol.wait; ld.global.u32 %r2, [%d1];"
	err := r.run(entry(t, parse(t, kernel(".param .u64 out", text)), "k"), 1, 64, r.alloc(4*64))
	if err == nil {
		t.Error("threads of two warps are ordered by griddepcontrol")
	}
}

// TestSpinning: threads that wait for others of their warp or block in a loop
// do not keep those from running.
func TestSpinning(t *testing.T) {
	body := `.shared .u32 s; mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 40; setp.eq.u32 %p3, %r0, 5;
@%p1 st.shared.u32 [s], 0;
bar.sync 0;
@%p2 bra SECOND; @%p3 bra FIRST;
WAIT: ld.volatile.shared.u32 %r1, [s]; setp.ne.u32 %p4, %r1, 2; @%p4 bra WAIT;
bra DONE;
SECOND: ld.volatile.shared.u32 %r1, [s]; setp.ne.u32 %p4, %r1, 1; @%p4 bra SECOND;
st.volatile.shared.u32 [s], 2;
bra DONE;
FIRST: st.volatile.shared.u32 [s], 1;
DONE:`
	r := newRig(t)
	r.mustRun(entry(t, parse(t, kernel("", body)), "k"), 1, 64)
}

// TestNamedBarriers: producers arrive and go on; consumers wait for them.
func TestNamedBarriers(t *testing.T) {
	body := `.shared .b8 s[128]; mov.u32 %r0, %tid.x; mov.u32 %r9, s; setp.lt.u32 %p1, %r0, 32; and.b32 %r1, %r0, 31; mad.lo.u32 %r2, %r1, 4, %r9;
ld.param.u64 %d1, [out]; mad.wide.u32 %d1, %r1, 4, %d1;
@!%p1 bra CONSUME;
mul.lo.u32 %r3, %r1, 3; st.shared.u32 [%r2], %r3; barrier.cta.arrive 3, 64; bra DONE;
CONSUME: barrier.sync.aligned 3, 64;
xor.b32 %r1, %r1, 1; mad.lo.u32 %r2, %r1, 4, %r9; ld.shared.u32 %r3, [%r2]; st.global.u32 [%d1], %r3;
DONE:`
	r := newRig(t)
	out := r.alloc(128)
	r.mustRun(entry(t, parse(t, kernel(".param .u64 out", body)), "k"), 1, 64, out)
	got := make([]uint32, 32)
	r.get(out, got)
	for i, v := range got {
		if v != uint32(i^1)*3 {
			t.Errorf("thread %d has %d", i, v)
		}
	}
}

// TestAsyncCopy: with fewer bytes of source than of destination, the rest is
// zero; none at all need not have an address.
func TestAsyncCopy(t *testing.T) {
	body := `.shared .align 16 .b8 s[48]; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r1, 0;
cp.async.cg.shared.global.L2::128B [s], [%d1], 16;
cp.async.cg.shared.global [s+16], [%d1+16], 16, 7;
cp.async.commit_group;
cp.async.ca.shared.global [s+32], [%d1+32], 8; cp.async.cg.shared::cta.global [s+32], [%d3], 16, %r1;
cp.async.wait_all;
ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s]; st.global.v4.u32 [%d2], {%r2, %r3, %r4, %r5};
ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s+16]; st.global.v4.u32 [%d2+16], {%r2, %r3, %r4, %r5};
ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s+32]; st.global.v4.u32 [%d2+32], {%r2, %r3, %r4, %r5};`
	r := newRig(t)
	in := make([]byte, 48)
	for i := range in {
		in[i] = byte(i + 1)
	}
	out := r.alloc(48)
	r.mustRun(entry(t, parse(t, kernel(".param .u64 in, .param .u64 out", body)), "k"), 1, 1, r.put(in), out)
	got := make([]byte, 48)
	r.get(out, got)
	for i, v := range got {
		want := byte(i + 1)
		if i >= 23 {
			want = 0
		}
		if v != want {
			t.Errorf("byte %d is %d, want %d", i, v, want)
		}
	}
}

// TestUnwrittenRegisters: a register that is not written holds all ones in every block, and a
// predicate is false, whatever the block before left in it.
func TestUnwrittenRegisters(t *testing.T) {
	r, e := newRig(t), entry(t, parse(t, kernel(".param .u64 y", `mov.u32 %r0, %ctaid.x;
ld.param.u64 %d0, [y];
mad.wide.u32 %d0, %r0, 16, %d0;
st.global.u32 [%d0], %r1;
mov.u32 %r1, 77;
selp.b32 %r2, 78, 79, %p1;
st.global.u32 [%d0+4], %r2;
setp.eq.u32 %p1, %r1, 77;
st.global.u64 [%d0+8], %d1;
mov.u64 %d1, %d0;`)), "k")
	const blocks = 3
	y := r.alloc(16 * blocks)
	r.mustRun(e, blocks, 1, y)
	got := make([]uint32, 4*blocks)
	r.get(y, got)
	for i, g := range got {
		if want := [...]uint32{math.MaxUint32, 79, math.MaxUint32, math.MaxUint32}[i%4]; g != want {
			t.Errorf("block %d: word %d is %#x, want %#x", i/4, i%4, g, want)
		}
	}
}

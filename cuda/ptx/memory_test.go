package ptx

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/prop"
	"pgregory.net/rapid"
)

func TestAlloc(t *testing.T) {
	m := NewMemory(1000)
	a := must(m.Alloc(600))
	b := must(m.Alloc(400))
	if a%256 != 0 || b%256 != 0 || b < a+600+256 && a < b+400+256 {
		t.Errorf("allocations at %#x and %#x", a, b)
	}
	if _, err := m.Alloc(1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("got %v, want out of memory", err)
	}
	if err := m.Free(b); err != nil {
		t.Fatal(err)
	}
	if c := must(m.Alloc(400)); c == b {
		t.Errorf("the address %#x is used again", c)
	}
	if _, err := m.Alloc(-1); err == nil {
		t.Error("an allocation of -1 bytes")
	}
	if e := must(m.Alloc(0)); m.Free(e) != nil {
		t.Error("an empty allocation cannot be freed")
	}
}

func TestHostErrors(t *testing.T) {
	m := NewMemory(1 << 20)
	a := must(m.Alloc(100))
	gone := must(m.Alloc(64))
	if err := m.Free(gone); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"free inside":  {m.Free(a + 4), "where no allocation starts"},
		"free twice":   {m.Free(gone), "was freed before"},
		"unwritten":    {m.Read(a, buf), "byte 0 has not been written"},
		"past the end": {m.Write(a+96, buf), "4 bytes past the end of the allocation of 100 bytes"},
		"far past":     {m.Write(a+200, buf), "100 bytes past the end of the allocation of 100 bytes"},
		"before":       {m.Write(a-16, buf), "16 bytes before the allocation of 100 bytes"},
		"freed":        {m.Fill(gone, 0, 4), "which was freed"},
		"null":         {m.Read(0, buf), "where nothing is allocated"},
		"copy from":    {m.Copy(a, gone, 4), "copy from"},
		"copy to":      {m.Copy(gone, a, 4), "copy to"},
		"negative":     {m.Fill(a, 0, -1), "-1 bytes"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", name, c.err, c.want)
		}
	}
	if err := m.Write(a+4, buf); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(a+8, buf); err == nil || !strings.Contains(err.Error(), "byte 4 has not been written (byte 12 of the allocation") {
		t.Errorf("got %v", err)
	}
	if _, err := m.Slice(a, 100); err == nil {
		t.Error("a slice with unwritten bytes")
	}
	v := must(m.SliceForWrite(a, 100))
	for i := range v {
		v[i] = byte(i)
	}
	if got := must(m.Slice(a+50, 2)); got[0] != 50 || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

// TestMemoryModel compares writes, fills and copies with a plain model.
func TestMemoryModel(t *testing.T) {
	prop.Check(t, func(t *rapid.T) {
		const size = 300
		m := NewMemory(1 << 20)
		addrs := []uint64{must(m.Alloc(size)), must(m.Alloc(size))}
		var data, known [2][size]byte
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "to")
			off := rapid.IntRange(0, size).Draw(t, "offset")
			n := rapid.IntRange(0, size-off).Draw(t, "bytes")
			value := rapid.Byte().Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				b := bytes.Repeat([]byte{value}, n)
				if err := m.Write(addrs[i]+uint64(off), b); err != nil {
					t.Fatal(err)
				}
				copy(data[i][off:], b)
				copy(known[i][off:], bytes.Repeat([]byte{1}, n))
			case 1:
				if err := m.Fill(addrs[i]+uint64(off), value, int64(n)); err != nil {
					t.Fatal(err)
				}
				copy(data[i][off:], bytes.Repeat([]byte{value}, n))
				copy(known[i][off:], bytes.Repeat([]byte{1}, n))
			default:
				j := rapid.IntRange(0, 1).Draw(t, "from")
				from := rapid.IntRange(0, size-n).Draw(t, "source")
				if err := m.Copy(addrs[i]+uint64(off), addrs[j]+uint64(from), int64(n)); err != nil {
					t.Fatal(err)
				}
				copy(data[i][off:off+n], data[j][from:from+n])
				copy(known[i][off:off+n], known[j][from:from+n])
			}
		}
		for i := range addrs {
			for k := range size {
				var b [1]byte
				err := m.Read(addrs[i]+uint64(k), b[:])
				if (err == nil) != (known[i][k] == 1) || err == nil && b[0] != data[i][k] {
					t.Fatalf("byte %d of %d is %d with %v, want %d, known %d", k, i, b[0], err, data[i][k], known[i][k])
				}
			}
		}
	})
}

// TestVectors moves every width of vector through all spaces.
func TestVectors(t *testing.T) {
	for _, c := range []struct{ vector, regs, move string }{
		{"v4.u32", "{%r1, %r2, %r3, %r4}", "16"}, {"v2.f32", "{%r1, %r2}", "8"}, {"v2.b64", "{%d4, %d5}", "16"},
		{"v4.u16", "{%h1, %h2, %h3, %h4}", "8"}, {"v4.b8", "{%h1, %h2, %h3, %h4}", "4"}, {"v2.u8", "{%r1, %r2}", "2"},
		{"u64", "%d4", "8"}, {"b16", "%h1", "2"}, {"s8", "%r1", "1"}, {"f64", "%d4", "8"},
	} {
		body := `.shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[16];
mov.u32 %r8, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r9, s; mov.u64 %d6, l;
mad.wide.u32 %d0, %r8, SIZE, %d0; mad.wide.u32 %d1, %r8, SIZE, %d1; mad.lo.u32 %r9, %r8, SIZE, %r9;
ld.global.nc.L1::no_allocate.L2::128B.TYPE REGS, [%d0];
st.shared.TYPE [%r9], REGS; ld.volatile.shared.TYPE REGS, [%r9];
st.local.TYPE [%d6], REGS; cvta.local.u64 %d7, %d6; ld.TYPE REGS, [%d7];
cvta.shared.u64 %d8, s; cvta.to.shared.u64 %d8, %d8;
st.global.cs.TYPE [%d1], REGS;`
		body = strings.NewReplacer("TYPE", c.vector, "REGS", c.regs, "SIZE", c.move).Replace(body)
		r := newRig(t)
		in := make([]byte, 64*16)
		for i := range in {
			in[i] = byte(i*7 + 3)
		}
		out := r.alloc(len(in))
		r.mustRun(entry(t, parse(t, kernel(".param .u64 in, .param .u64 out", body)), "k"), 1, 64, r.put(in), out)
		n := 64 * int(c.move[0]-'0')
		if len(c.move) == 2 {
			n = len(in)
		}
		got := make([]byte, n)
		r.get(out, got)
		if !bytes.Equal(got, in[:n]) {
			t.Errorf("%s: what comes out is not what went in", c.vector)
		}
	}
}

// TestGenericAddresses: isspacep and access through the windows.
func TestGenericAddresses(t *testing.T) {
	text := header + `.global .u32 g = 5; .const .u32 c[2] = {6, 7};
.global .u64 p[3] = {g, generic(c)+4, 9};
.visible .entry k(.param .u64 out, .param .align 4 .b8 big[8]) {
.reg .b64 %d<16>; .reg .b32 %r<16>; .reg .pred %p<4>; .shared .u32 s; .local .u32 l;
ld.param.u64 %d1, [out];
mov.u64 %d2, p; ld.global.u64 %d3, [%d2]; ld.u32 %r1, [%d3];
ld.u64 %d4, [%d2+8]; ld.u32 %r2, [%d4]; isspacep.const %p1, %d4; selp.u32 %r3, 1, 0, %p1;
mov.u64 %d5, s; cvta.shared.u64 %d5, %d5; st.u32 [%d5], 8; ld.shared.u32 %r4, [s]; isspacep.shared %p2, %d5; @%p2 add.u32 %r3, %r3, 2;
mov.u64 %d6, l; cvta.local.u64 %d6, %d6; st.u32 [%d6], 9; ld.local.u32 %r5, [l]; isspacep.local %p3, %d6; @%p3 add.u32 %r3, %r3, 4;
isspacep.global %p1, %d3; @%p1 add.u32 %r3, %r3, 8; isspacep.shared %p1, %d3; @%p1 add.u32 %r3, %r3, 16;
mov.b64 %d7, big; cvta.param.u64 %d8, %d7; ld.u32 %r6, [%d8+4]; ld.param.u32 %r7, [%d7];
ld.const.u32 %r8, [c+4]; ld.global.u32 %r9, [p+16];
st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4}; st.global.v2.u32 [%d1+16], {%r5, %r6}; st.global.v2.u32 [%d1+24], {%r7, %r8};
st.global.u32 [%d1+32], %r9; st.global.u32 [g], 6; ret; }`
	r := newRig(t)
	m := parse(t, text)
	e := entry(t, m, "k")
	out := r.alloc(36)
	for run := range uint32(2) {
		r.mustRun(e, 1, 1, out, [2]uint32{10, 11})
		got := make([]uint32, 9)
		r.get(out, got)
		for i, want := range []uint32{5 + run, 7, 15, 8, 9, 11, 10, 7, 9} {
			if got[i] != want {
				t.Errorf("run %d: number %d is %d, want %d", run, i, got[i], want)
			}
		}
	}
	// A copy of the module has variables of its own, and so has another memory.
	again := entry(t, m.Copy(), "k")
	r.mustRun(again, 1, 1, out, [2]uint32{10, 11})
	first := make([]uint32, 1)
	if r.get(out, first); first[0] != 5 {
		t.Errorf("a copy of the module begins with %d", first[0])
	}
	other := newRig(t)
	out = other.alloc(36)
	other.mustRun(e, 1, 1, out, [2]uint32{10, 11})
	got := make([]uint32, 1)
	other.get(out, got)
	if got[0] != 5 {
		t.Errorf("in another memory g is %d", got[0])
	}
}

// TestAtomics runs each operation by 64 threads on one location and compares
// with the same done in order.
func TestAtomics(t *testing.T) {
	wrap := func(v uint64, limit uint64) uint64 {
		if v >= limit {
			return 0
		}
		return v + 1
	}
	for form, f := range map[string]func(old, b uint64) uint64{
		"add.u32": func(old, b uint64) uint64 { return (old + b) & mask(32) }, "add.s32": func(old, b uint64) uint64 { return (old + b) & mask(32) },
		"add.u64": func(old, b uint64) uint64 { return old + b }, "min.s32": func(old, b uint64) uint64 { return uint64(min(sext(old, 32), sext(b, 32))) & mask(32) },
		"max.u32": func(old, b uint64) uint64 { return max(old, b) }, "min.u64": func(old, b uint64) uint64 { return min(old, b) },
		"max.s64": func(old, b uint64) uint64 { return uint64(max(int64(old), int64(b))) },
		"and.b32": func(old, b uint64) uint64 { return old & b }, "or.b64": func(old, b uint64) uint64 { return old | b }, "xor.b32": func(old, b uint64) uint64 { return old ^ b },
		"exch.b32": func(_, b uint64) uint64 { return b }, "inc.u32": func(old, b uint64) uint64 { return wrap(old, b) },
		"dec.u32": func(old, b uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		},
		"add.f32":        func(old, b uint64) uint64 { return bits32(flush(flush(float32of(old)) + flush(float32of(b)))) },
		"add.f64":        func(old, b uint64) uint64 { return referenceFloat("add", formats[tF64], roundEven, old, b, 0) },
		"add.noftz.f16":  func(old, b uint64) uint64 { return referenceFloat("add", formats[tF16], roundEven, old, b, 0) },
		"add.noftz.bf16": func(old, b uint64) uint64 { return referenceFloat("add", formats[tBF16], roundEven, old, b, 0) },
		"add.noftz.f16x2": func(old, b uint64) uint64 {
			return referenceFloat("add", formats[tF16], roundEven, old&0xffff, b&0xffff, 0) | referenceFloat("add", formats[tF16], roundEven, old>>16, b>>16, 0)<<16
		},
	} {
		t.Run(form, func(t *testing.T) {
			ty := typesByName[form[strings.LastIndexByte(form, '.')+1:]]
			size := ty.bytes()
			reg := map[int]string{2: "%h1", 4: "%r1", 8: "%d4"}[size]
			old := map[int]string{2: "%h2", 4: "%r2", 8: "%d5"}[size]
			body := strings.NewReplacer("FORM", form, "REG", reg, "OLD", old).Replace(`
mov.u32 %r8, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [at]; ld.param.u64 %d2, [out];
mad.wide.u32 %d0, %r8, 8, %d0; mad.wide.u32 %d2, %r8, 8, %d2;
ld.global.bSIZE REG, [%d0];
atom.relaxed.gpu.global.FORM OLD, [%d1], REG;
red.global.FORM [%d1+8], REG;
st.global.bSIZE [%d2], OLD;`)
			body = strings.ReplaceAll(body, "SIZE", map[int]string{2: "16", 4: "32", 8: "64"}[size])
			e := entry(t, parse(t, kernel(".param .u64 in, .param .u64 at, .param .u64 out", body)), "k")
			g := integers(ty.bits())
			if ty.kind() == kindFloat || size == 2 {
				g = numbers(formats[ty])
			}
			seeds(t, func(t *testing.T, random *rand.Rand) {
				r := rig{nil, NewMemory(1 << 20)}
				in := make([]uint64, 65)
				for i := range in {
					in[i] = g(random)
				}
				at, out := must(r.mem.Alloc(16)), must(r.mem.Alloc(8*64))
				if err := r.mem.Fill(out, 0, 8*64); err != nil {
					t.Fatal(err)
				}
				v := must(r.mem.SliceForWrite(at, 16))
				put(v, 8, in[64])
				put(v[8:], 8, in[64])
				if err := r.launch(e, Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{64, 1, 1}, Params: words(r.put64(in[:64]), at, out)}); err != nil {
					t.Fatal(err)
				}
				want := in[64]
				got := must(r.mem.Slice(out, 8*64))
				for i := range 64 {
					if g := get(got[8*i:], 8); g != want {
						t.Fatalf("thread %d gets %#x, want %#x", i, g, want)
					}
					want = f(want, in[i])
				}
				if one, two := get(v, 8), get(v[8:], 8); one != want || two != want {
					t.Fatalf("the end is %#x and %#x, want %#x", one, two, want)
				}
			})
		})
	}
}

func (r rig) put64(v []uint64) uint64 {
	addr := must(r.mem.Alloc(int64(8 * len(v))))
	data := must(r.mem.SliceForWrite(addr, int64(8*len(v))))
	for i := range v {
		put(data[8*i:], 8, v[i])
	}
	return addr
}

func words(v ...uint64) []byte {
	b := make([]byte, 8*len(v))
	for i := range v {
		put(b[8*i:], 8, v[i])
	}
	return b
}

// TestCompareAndSwap adds in f32 by a loop around cas, in shared memory too.
func TestCompareAndSwap(t *testing.T) {
	body := `.shared .f32 s; .reg .f32 %f<4>;
mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.f32 [s], 0f00000000;
bar.sync 0;
atom.shared.or.b32 %r1, [s], 0;
AGAIN: mov.b32 %r2, %r1; mov.b32 %f1, %r1; add.f32 %f1, %f1, 0f3F800000; mov.b32 %r3, %f1;
atom.shared.cas.b32 %r1, [s], %r2, %r3;
setp.ne.b32 %p2, %r1, %r2; @%p2 bra AGAIN;
bar.sync 0;
ld.param.u64 %d1, [out]; ld.shared.f32 %f2, [s]; @%p1 st.global.f32 [%d1], %f2;`
	r := newRig(t)
	out := r.alloc(4)
	r.mustRun(entry(t, parse(t, kernel(".param .u64 out", body)), "k"), 1, 70, out)
	if got := r.floats(out, 1)[0]; got != 70 {
		t.Errorf("got %v, want 70", got)
	}
}

package ptx

import (
	"context"
	"encoding/binary"
	"testing"
)

// metered runs a kernel of 32 threads per block, of which %d1 is p and %d2 is q, and
// %r0 the thread, and says what was counted.
func metered(t *testing.T, body string, grid [3]int, m *Meter) Counts {
	t.Helper()
	text := ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q) {\n" +
		".reg .b32 %r<20>; .reg .b64 %d<20>; .reg .f32 %f<20>; .reg .pred %p<4>;\n.shared .align 16 .b8 s[16384];\n" +
		"ld.param.u64 %d1, [p];\nld.param.u64 %d2, [q];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\n" + body + "\nret;\n}\n"
	mod, err := Parse("k", text)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := mod.Entry("k")
	mem := NewMemory(1 << 22)
	mem.Unchecked = true
	var params []byte
	for range 2 {
		at, err := mem.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		params = binary.LittleEndian.AppendUint64(params, at)
	}
	if err := e.Run(context.Background(), mem, Launch{Grid: grid, Block: [3]int{32, 1, 1}, Params: params, Meter: m}); err != nil {
		t.Fatal(err)
	}
	return m.Counts
}

// TestCounts: requests whose traffic is known.
func TestCounts(t *testing.T) {
	at := func(stride string) string { return "mad.wide.u32 %d3, %r0, " + stride + ", %d1;\n" }
	shared := func(stride string) string {
		return "mul.lo.u32 %r5, %r0, " + stride + ";\nmov.u32 %r6, s;\nadd.u32 %r5, %r5, %r6;\n"
	}
	for _, c := range []struct {
		name, body    string
		loads, stores Access
		shared        Banks
	}{
		{"neighbours", at("4") + "ld.global.f32 %f1, [%d3];", Access{1, 128, 128, 4, 4}, Access{}, Banks{}},
		{"vectors", at("16") + "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d3];", Access{1, 512, 512, 16, 16}, Access{}, Banks{}},
		{"off by four bytes", at("4") + "ld.global.f32 %f1, [%d3+4];", Access{1, 128, 128, 5, 4}, Access{}, Banks{}},
		{"every second vector", at("32") + "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d3];", Access{1, 512, 512, 32, 16}, Access{}, Banks{}},
		{"one for all", "ld.global.nc.f32 %f1, [%d1];", Access{1, 128, 4, 1, 1}, Access{}, Banks{}},
		{"far apart", at("128") + "st.global.u16 [%d3], 0;", Access{}, Access{1, 64, 64, 32, 2}, Banks{}},
		{"twice", at("4") + "ld.global.f32 %f1, [%d3];\nld.global.f32 %f1, [%d3];", Access{2, 256, 128, 8, 8}, Access{}, Banks{}},
		{"read and written", at("4") + "ld.global.u32 %r3, [%d3];\nst.global.u32 [%d3], %r3;", Access{1, 128, 128, 4, 4}, Access{1, 128, 128, 4, 4}, Banks{}},
		{"half a warp", at("4") + "setp.lt.u32 %p1, %r0, 16;\n@%p1 ld.global.f32 %f1, [%d3];", Access{1, 64, 64, 2, 2}, Access{}, Banks{}},
		{"generic", "cvta.global.u64 %d4, %d1;\nmad.wide.u32 %d3, %r0, 4, %d4;\nld.f32 %f1, [%d3];", Access{1, 128, 128, 4, 4}, Access{}, Banks{}},
		{"atomics", "red.global.add.u32 [%d1], 1;", Access{1, 128, 4, 1, 1}, Access{1, 128, 4, 1, 1}, Banks{}},
		{"copies", at("16") + shared("16") + "cp.async.cg.shared.global [%r5], [%d3], 16;\ncp.async.wait_all;", Access{1, 512, 512, 16, 16}, Access{}, Banks{512, 4, 4}},

		{"banks in a row", shared("4") + "st.shared.u32 [%r5], 0;", Access{}, Access{}, Banks{128, 1, 1}},
		{"two words apart", shared("8") + "st.shared.u32 [%r5], 0;", Access{}, Access{}, Banks{128, 2, 1}},
		{"one bank", shared("128") + "st.shared.u32 [%r5], 0;", Access{}, Access{}, Banks{128, 32, 1}},
		{"33 words apart", shared("132") + "st.shared.u32 [%r5], 0;", Access{}, Access{}, Banks{128, 1, 1}},
		{"one word for all", "st.shared.u32 [s], 0;\nld.shared.u32 %r3, [s];", Access{}, Access{}, Banks{256, 2, 2}},
		{"halves of words", shared("2") + "st.shared.u16 [%r5], 0;", Access{}, Access{}, Banks{64, 1, 1}},
		{"pairs", shared("8") + "st.shared.u64 [%r5], 0;", Access{}, Access{}, Banks{256, 2, 2}},
		{"pairs, 64 bytes apart", shared("64") + "st.shared.u64 [%r5], 0;", Access{}, Access{}, Banks{256, 16, 2}},
		{"quads", shared("16") + "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};", Access{}, Access{}, Banks{512, 4, 4}},
		{"quads, 128 bytes apart", shared("128") + "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};", Access{}, Access{}, Banks{512, 32, 4}},
	} {
		got := metered(t, c.body, [3]int{1, 1, 1}, &Meter{})
		if got.Loads != c.loads || got.Stores != c.stores || got.Shared != c.shared {
			t.Errorf("%s: loads %+v, stores %+v, shared %+v", c.name, got.Loads, got.Stores, got.Shared)
		}
	}
}

// TestSamples: what some blocks say of all is what all say, and fewer run.
func TestSamples(t *testing.T) {
	const own = "mad.lo.u32 %r4, %r1, 32, %r0;\nmul.wide.u32 %d3, %r4, 4;\nadd.u64 %d4, %d1, %d3;\nadd.u64 %d5, %d2, %d3;\n"
	for _, c := range []struct {
		name, body string
		sampled    bool
	}{
		{"a piece each", own + "ld.global.f32 %f1, [%d4];\nst.global.f32 [%d5], %f1;", true},
		{"one piece for all", "mad.wide.u32 %d4, %r0, 4, %d1;\nld.global.f32 %f1, [%d4];", true},
		{"overlapping", "mad.lo.u32 %r4, %r1, 16, %r0;\nmad.wide.u32 %d4, %r4, 4, %d1;\nld.global.f32 %f1, [%d4];", true},
		{"the last one is short", own + "mov.u32 %r7, %nctaid.x;\nsub.u32 %r7, %r7, 1;\nsetp.ne.u32 %p1, %r1, %r7;\nsetp.lt.u32 %p2, %r0, 20;\n" +
			"or.pred %p3, %p1, %p2;\n@%p3 ld.global.f32 %f1, [%d4];", true},
		{"rows and columns", "mad.lo.u32 %r4, %r1, 32, %r0;\nmad.wide.u32 %d4, %r4, 4, %d1;\nld.global.f32 %f1, [%d4];\n" +
			"mad.lo.u32 %r5, %r2, 32, %r0;\nmad.wide.u32 %d5, %r5, 4, %d2;\nld.global.f32 %f2, [%d5];", true},
		{"more and more", "mov.u32 %r5, 0;\nL: mad.lo.u32 %r4, %r5, 32, %r0;\nmad.wide.u32 %d4, %r4, 4, %d1;\nld.global.f32 %f1, [%d4];\n" +
			"add.u32 %r5, %r5, 1;\nsetp.le.u32 %p1, %r5, %r1;\n@%p1 bra L;", false},
		{"some have nothing to do", own + "and.b32 %r6, %r1, 4;\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 ret;\n" +
			"ld.global.f32 %f1, [%d4];\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\n" +
			"add.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\n" +
			"add.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nst.global.f32 [%d5], %f1;", false},
		{"the last ones have nothing to do", own + "mov.u32 %r7, %nctaid.x;\nmul.lo.u32 %r7, %r7, 3;\nmul.lo.u32 %r6, %r1, 4;\nsetp.ge.u32 %p1, %r6, %r7;\n@%p1 ret;\n" +
			"mov.u32 %r5, 0;\nL: ld.global.f32 %f1, [%d4];\nadd.u32 %r5, %r5, 1;\nsetp.le.u32 %p1, %r5, 90;\n@%p1 bra L;", false},
		{"blocks that meet", own + "red.global.add.u32 [%d2], 1;", false},
	} {
		for _, grid := range [][3]int{{76, 1, 1}, {77, 1, 1}, {9, 8, 1}} {
			whole, some := metered(t, c.body, grid, &Meter{}), metered(t, c.body, grid, &Meter{Sample: true})
			sampled := some.Run < some.Blocks
			if some.Run = whole.Run; some != whole {
				if c.name == "some have nothing to do" && grid[1] > 1 {
					continue // four blocks do not show it
				}
				t.Errorf("%s, %v: %+v, whole %+v", c.name, grid, some, whole)
			}
			if c.sampled && !sampled {
				t.Errorf("%s, %v: all blocks ran", c.name, grid)
			}
		}
	}
	body := own + "ld.global.f32 %f1, [%d4];\nmad.wide.u32 %d5, %r1, 4, %d2;\nred.global.add.u32 [%d5], 1;"
	whole, some := metered(t, body, [3]int{76, 1, 3}, &Meter{}), metered(t, body, [3]int{76, 1, 3}, &Meter{Sample: true})
	if sampled := some.Run < some.Blocks; !sampled {
		t.Error("blocks that meet along the third axis alone: all ran")
	}
	if some.Run, some.Atomics = whole.Run, whole.Atomics; some != whole {
		t.Errorf("blocks that meet along the third axis alone: %+v, whole %+v", some, whole)
	}
	m := &Meter{Sample: true, Cheap: 1 << 20}
	if c := metered(t, "", [3]int{100, 1, 1}, m); c.Run != 100 || c.Blocks != 100 {
		t.Errorf("a cheap launch: %+v", c)
	}
}

// TestLongest: the block with most instructions is known, of all blocks and of some.
func TestLongest(t *testing.T) {
	body := "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra end;\nmov.u32 %r3, 50;\nloop:\nsub.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra loop;\nend:\n"
	for _, m := range []*Meter{{}, {Sample: true}} {
		few, many := metered(t, body, [3]int{1, 1, 1}, m), metered(t, body, [3]int{1, 100, 1}, m)
		if few.Longest != few.Instrs || many.Longest != few.Longest || few.Longest < 150 || m.Sample == (many.Run == 100) {
			t.Errorf("sampled %t: %+v, %+v", m.Sample, few, many)
		}
		if mixed := metered(t, body, [3]int{2, 1, 1}, m); mixed.Longest != few.Longest || mixed.Instrs >= 2*few.Longest {
			t.Errorf("sampled %t: %+v", m.Sample, mixed)
		}
	}
}

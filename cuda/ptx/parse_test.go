package ptx

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestParseErrors: each names the line and what is wrong.
func TestParseErrors(t *testing.T) {
	for body, want := range map[string]string{
		"frobnicate.u32 %r1, %r2;":                              "line 7: frobnicate.u32 %r1, %r2: instruction frobnicate is not modelled",
		"\nadd.u32.sideways %r1, %r2, %r3;":                     "line 8: add.u32.sideways %r1, %r2, %r3: modifier .sideways is not modelled",
		"add.u32 %r1, %r2;":                                     "2 operands",
		"add.u32 %r1, %r2, %x;":                                 "%x is not declared",
		"add.u32 %r1, %r2, %r99;":                               "%r99 is not declared",
		"add.u32 %r1, %r2, %d1;":                                "%d1 has 64 bits, not 32",
		"add.u32 %p1, %r2, %r1;":                                "%p1 is no register of 32 bits",
		"add.b32 %r1, %r2, %r3;":                                "add has no type b32",
		"add %r1, %r2, %r3;":                                    "add has no type",
		"fma.f32 %r1, %r2, %r3, %r4;":                           "fma.f32 needs a rounding mode",
		"ex2.f32 %r1, %r2;":                                     "ex2.f32 needs a rounding mode",
		"ex2.approx.f64 %d1, %d2;":                              "ex2 has no type f64",
		"div.full.f64 %d1, %d2, %d3;":                           "div.f64 has no .full",
		"cvt.s32.f32 %r1, %r2;":                                 "cvt from f32 to s32",
		"cvt.f32.f64 %r1, %d2;":                                 "cvt from f64 to f32",
		"cvt.rn.u32.u64 %r1, %d2;":                              "cvt from u64 to u32",
		"mov.u32 %r1, 0f3F800000; mov.u16 %h1, 0f3F800000;":     "a floating-point literal for type u16",
		"bra NOWHERE;":                                          "there is no label NOWHERE",
		"A: A: ret;":                                            "label A is there twice",
		"brx.idx %r1, T;":                                       "there is no table T",
		"@%r1 bra OUT; OUT:":                                    "%r1 is no predicate",
		"setp.lo.s32 %p1, %r1, %r2;":                            "no comparison .lo of type s32",
		"setp.num.u32 %p1, %r1, %r2;":                           "no comparison .num of type u32",
		"selp.u32 %r1, %r2, %r3, %r4;":                          "%r4 is no predicate",
		"ld.global.u32 %r1, %d1;":                               "expected an address in brackets",
		"ld.global.u32 %r1, [%r2];":                             "too few for a global address",
		"ld.global.v3.u32 {%r1, %r2, %r3}, [%d1];":              "3 registers, not 1",
		"ld.global.v4.u32 {%r1, %r2, %r3}, [%d1];":              "3 registers, not 4",
		"ld.global.v4.u64 {%d1, %d2, %d3, %d4}, [%d5];":         "ld has no type u64",
		"ld.global.u64 %r1, [%d1];":                             "%r1 has 32 bits, not 64",
		"ld.param.u32 %r1, [n+8];":                              "4 bytes at 8 of the 4 bytes of parameters",
		"ld.param.u32 %r1, [m];":                                "m is no address",
		"ld.shared.u32 %r1, [n];":                               "a param address in a shared access",
		"st.param.u32 [n], 5;":                                  "a store to param memory",
		".local .b8 l[600000];":                                 "more than 524288 bytes of local memory",
		".shared .b8 s[];":                                      "s has no size",
		".global .b8 s[4];":                                     "a global variable inside a function",
		".const .b8 s[4] = {1, 2, 3, 4, 5};":                    "more values than its 4 bytes",
		"bar.sync;":                                             "0 operands",
		"barrier.cluster.arrive;":                               "barrier.cluster.arrive is not modelled",
		"shfl.down.b32 %r1, %r2, 1, 31;":                        "shfl.down.b32 is not modelled",
		"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 a, b;": "not modelled",
		"griddepcontrol;":                                       "griddepcontrol is not modelled",
		"griddepcontrol.wait 1;":                                "1 operands",
		"fns.b32 %r1, %r2, %r3, %r4;":                           "instruction fns is not modelled",
		"wgmma.fence.sync.aligned;":                             "instruction wgmma is not modelled",
		"cp.async.bulk.commit_group;":                           "cp.async.bulk.commit_group is not modelled",
		"cp.async.cg.shared.global [%r1], [%d1], 8;":            "cp.async.cg of 8 bytes",
		"fence.proxy.async;":                                    "a fence without a scope",
		"atom.global.add.b32 %r1, [%d1], %r2;":                  "atom.add has no type b32",
		"atom.local.add.u32 %r1, [%d1], %r2;":                   "an atomic in local memory",
		"mov.u32 %r1, %smid;":                                   "%smid is not declared",
		"call.uni nowhere, ();":                                 "function nowhere is not defined here",
		"call.uni ext, ();":                                     "function ext is not defined here",
		"call.uni self, ();":                                    "function self calls itself",
		"call.uni one, ();":                                     "0 arguments for 1 parameters",
		".param .b32 a; call.uni one, (a);":                     "argument a does not fit parameter x of 8 bytes",
		"call.uni %d1, (), proto;":                              "only calls of functions by name are modelled",
		"lop3.b32 %r1, %r2, %r3, %r4, 256;":                     "no number up to 255",
		"vote.ballot.b32 %r1, %p1;":                             "vote.ballot.b32 is not modelled",
		"mov.b64 %d1, {%r1, %r2, %r3};":                         "3 pieces of type b64",
		"prmt.b32 %r1, %r2, %r3;":                               "3 operands",
		".reg .tf32 %x;":                                        "registers of type",
		".weird 5;":                                             "directive .weird is not understood",
		"add.u32 %r1, %r2, (%r3;":                               "expected ,, found ;",
		"add.u32 %r1, -%r2, %r3;":                               "-%r2",
		"add.u32 %r1, 0f12, %r3;":                               "0f12 is not an f32 literal",
		"add.u32 %r1, 99999999999999999999, %r3;":               "is not a number",
		"add.u32 %r1, \"a, %r3;":                                "a string that does not end",
		"add.u32 %r1, ?, %r3;":                                  "unexpected character '?'",
		"/* add.u32":                                            "a comment that does not end",
		"}}":                                                    "expected a directive",
	} {
		text := kernel(".param .u32 n", body) + `.extern .func ext;
.func self() { call.uni self, (); ret; }
.func one(.param .b64 x) { ret; }`
		if _, err := Parse("test", text); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "test: line ") {
			t.Errorf("%s\ngot %v\nwant …%s…", body, err, want)
		}
	}
	for text, want := range map[string]string{
		".extern .global .u32 g;":                                    "line 1: variable g lives in another module",
		".global .u32 g; .global .u32 g;":                            "variable g is declared twice",
		".global .u64 g = h;":                                        "holds the address of h",
		".global .u32 g = k; .entry k() { ret; }":                    "an address in a variable of type u32",
		".global .u32 g = 0d0000000000000000;":                       "floating-point literal",
		".global .u32 g = {1, 2};":                                   "more values than its 4 bytes",
		".const .b8 c[70000];":                                       "70000 bytes of constants, of 65536",
		".global .b8 g[4000000000];":                                 "variable g is too large",
		".global .align 3 .b8 g;":                                    "an alignment of 3",
		".entry k() { ret; } .entry k() { ret; }":                    "function k is defined twice",
		".entry k() {":                                               "function k does not end",
		".entry k() .weird { ret; }":                                 ".weird is not understood at function k",
		".entry k(.reg .b32 x) { ret; }":                             "expected .param",
		".entry k() .maxntid 0 { ret; }":                             "0 threads",
		".visible":                                                   "expected a directive, found the end",
		".tex .u32 t;":                                               "directive .tex is not understood",
		".func f() { exit; } .entry k() { .reg .b32 %r<99999999>; }": "99999999 registers",
	} {
		if _, err := Parse("test", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v\nwant …%s…", text, err, want)
		}
	}
}

func TestEntry(t *testing.T) {
	text := header + `.extern .shared .align 32 .b8 dyn[]; .shared .u32 outer; .shared .u32 unused;
.visible .entry a(.param .u32 n, .param .align 16 .b8 s[20], .param .u64 .ptr .global .align 4 p, .param .u8 c)
.minnctapersm 2
{ .shared .align 8 .b8 s1[12]; .shared .u64 s2; .reg .b32 %r; .reg .b64 %d; ld.shared.u32 %r, [outer]; mov.u32 %r, dyn; ld.param.u64 %d, [p]; ret; }
.entry b() { ret; }`
	m := parse(t, text)
	if got := m.Entries(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("entries %v", got)
	}
	if _, ok := m.Entry("c"); ok {
		t.Error("there is a kernel c")
	}
	a := entry(t, m, "a")
	want := []Param{{"n", 0, 4, 4}, {"s", 16, 20, 16}, {"p", 40, 8, 8}, {"c", 48, 1, 1}}
	if got := a.Params(); !slices.Equal(got, want) {
		t.Errorf("parameters %v, want %v", got, want)
	}
	if a.Name() != "a" || a.ParamBytes() != 49 || a.SharedBytes() != 28 || a.dynamicAt() != 32 {
		t.Errorf("%s has %d bytes of parameters, %d of shared memory, dynamic from %d", a.Name(), a.ParamBytes(), a.SharedBytes(), a.dynamicAt())
	}
}

// TestDebugSections: what -g adds is skipped.
func TestDebugSections(t *testing.T) {
	text := header + `.file 1 "a.cu"
.visible .entry k()
{
	.loc	1 5 0
	.loc	1 6 2, function_name $L__info_string0, inlined_at 1 7 3
	.pragma "nounroll";
	ret;
}
.section .debug_abbrev
{
.b8 1 // code
.b8 17
}
.section	.debug_loc	{	}
`
	parse(t, text)
}

// FuzzParse: text of any kind is parsed or refused, and never more than that.
func FuzzParse(f *testing.F) {
	for _, arch := range architectures {
		text, err := os.ReadFile("testdata/kernels." + arch + ".ptx")
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "// -- Begin function") {
			f.Add(header + part[strings.Index(part, "\n")+1:])
		}
	}
	f.Add(kernel(faultParams, faultStart+lastBlock("bar.sync 0;", "")))
	f.Add(kernel("", arithmeticLoop))
	f.Add(kernel(".param .u64 out", "A: { B: bra A; } T: .branchtargets A, A; brx.idx 3, T; call (a, b), c, (d);"))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse("fuzz", text)
		if (m == nil) == (err == nil) {
			t.Fatalf("Parse returns %v and %v", m, err)
		}
	})
}

// FuzzRun: what is parsed runs, to some end.
func FuzzRun(f *testing.F) {
	f.Add(kernel(faultParams, faultStart+lastBlock("bar.sync 0;", "")))
	f.Add(kernel("", arithmeticLoop))
	f.Add(kernel(".param .u64 out", "A: { B: @%p1 bra A; } T: .branchtargets A, A; brx.idx 3, T; bar.red.popc.u32 %r1, 0, %p1;"))
	f.Add(kernel("", ".shared .b8 s[64]; st.shared.v4.u32 [s+16], {%r1, 2, 3, 4}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [s]; match.any.sync.b32 %r1, %r2, 7; div.s32 %r1, %r2, -1;"))
	f.Add(kernel("", "cvt.rzi.s32.f32 %r1, %r2; shf.l.wrap.b32 %r1, %r2, %r3, %r4; bfe.u64 %d1, %d2, %r1, %r2; atom.shared.add.u32 %r1, [%d1], 2; cp.async.wait_group 1;"))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse("fuzz", text)
		if err != nil {
			return
		}
		for _, name := range m.Entries() {
			e := entry(t, m, name)
			if e.local > 1<<10 || len(m.globals) > 4 {
				continue
			}
			l := Launch{Grid: [3]int{2, 1, 1}, Block: [3]int{33, 1, 1}, Params: make([]byte, e.ParamBytes()), Steps: 200}
			_ = e.Run(t.Context(), NewMemory(1<<20), l)
		}
	})
}

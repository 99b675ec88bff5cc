package ptx

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// relation evaluates a comparison of three outcomes and unordered.
func relation(name string, order int, unordered bool) bool {
	switch {
	case name == "num":
		return !unordered
	case name == "nan":
		return unordered
	case unordered:
		return len(name) == 3
	}
	switch strings.TrimSuffix(name, "u") {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "lt", "lo":
		return order < 0
	case "le", "ls":
		return order <= 0
	case "gt", "hi":
		return order > 0
	}
	return order >= 0 // ge, hs
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func TestSetp(t *testing.T) {
	names := map[typeKind][]string{
		kindInt:   {"eq", "ne", "lt", "le", "gt", "ge"},
		kindUint:  {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"},
		kindBits:  {"eq", "ne"},
		kindFloat: {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"},
	}
	names[kindHalf] = names[kindFloat]
	for _, ty := range []typ{tB16, tB32, tB64, tU16, tU32, tU64, tS16, tS32, tS64, tF16, tBF16, tF32, tF64} {
		width := ty.bits()
		g := integers(width)
		if ty.kind() == kindFloat || ty.kind() == kindHalf {
			g = numbers(formats[ty])
		}
		twin := g
		for _, name := range names[ty.kind()] {
			operation{fmt.Sprintf("setp.%s.%s %%z, %%x, %%y;", name, ty), 1, width, width, 0}.check(t, g, twin, nil, func(x, y, _ uint64) uint64 {
				order, unordered := compare(ty, x, y)
				return bit(relation(name, order, unordered))
			})
		}
	}
}

func compare(ty typ, x, y uint64) (order int, unordered bool) {
	if ty.integer() || ty.kind() == kindBits {
		return value(ty, x).Cmp(value(ty, y)), false
	}
	a, b := formats[ty].value(x), formats[ty].value(y)
	switch {
	case a != a || b != b:
		return 0, true
	case a < b:
		return -1, false
	case a > b:
		return 1, false
	}
	return 0, false
}

// TestSetpCombined: with a predicate, a second destination and .ftz.
func TestSetpCombined(t *testing.T) {
	g, p := integers(32), integers(1)
	ops := map[string]func(a, b bool) bool{
		"and": func(a, b bool) bool { return a && b }, "or": func(a, b bool) bool { return a || b }, "xor": func(a, b bool) bool { return a != b },
	}
	for name, f := range ops {
		operation{"setp.lt." + name + ".s32 %z, %x, %y, %w;", 1, 32, 32, 1}.check(t, g, g, p, func(x, y, w uint64) uint64 {
			return bit(f(sext(x, 32) < sext(y, 32), w != 0))
		})
		operation{"{ .reg .pred %q; setp.eq." + name + ".u32 %q|%z, %x, %y, !%w; }", 1, 32, 32, 1}.check(t, g, g, p, func(x, y, w uint64) uint64 {
			return bit(f(x != y, w == 0))
		})
		operation{name + ".pred %z, %x, !%y;", 1, 1, 1, 0}.check(t, p, p, nil, func(x, y, _ uint64) uint64 { return bit(f(x != 0, y == 0)) })
		operation{"{ .reg .b32 %s; set.gt." + name + ".u32.s32 %z, %x, %y, %w; }", 32, 32, 32, 1}.check(t, g, g, p, func(x, y, w uint64) uint64 {
			return mask(32) * bit(f(sext(x, 32) > sext(y, 32), w != 0))
		})
	}
	operation{"not.pred %z, %x;", 1, 1, 0, 0}.check(t, p, nil, nil, func(x, _, _ uint64) uint64 { return 1 - x })
	operation{"mov.pred %z, %x;", 1, 1, 0, 0}.check(t, p, nil, nil, func(x, _, _ uint64) uint64 { return x })
	f := numbers(formats[tF32])
	operation{"setp.ltu.ftz.f32 %z, %x, %y;", 1, 32, 32, 0}.check(t, f, f, nil, func(x, y, _ uint64) uint64 {
		order, unordered := compare(tF32, flush32(x), flush32(y))
		return bit(relation("ltu", order, unordered))
	})
	operation{"set.le.f32.f32 %z, %x, %y;", 32, 32, 32, 0}.check(t, f, f, nil, func(x, y, _ uint64) uint64 {
		order, unordered := compare(tF32, x, y)
		return f32bits(1) * bit(relation("le", order, unordered))
	})
	h := numbers(formats[tF16])
	two := pair(h)
	operation{"{ .reg .pred %l, %h; setp.gt.f16x2 %l|%h, %x, %y; selp.u32 %z, 1, 0, %l; @%h add.u32 %z, %z, 2; }", 32, 32, 32, 0}.check(t, two, two, nil, func(x, y, _ uint64) uint64 {
		low, u := compare(tF16, x&0xffff, y&0xffff)
		high, v := compare(tF16, x>>16, y>>16)
		return bit(relation("gt", low, u)) + 2*bit(relation("gt", high, v))
	})
}

func TestSelect(t *testing.T) {
	p := integers(1)
	for _, width := range []int{16, 32, 64} {
		g := integers(width)
		operation{fmt.Sprintf("selp.b%d %%z, %%x, %%y, %%w;", width), width, width, width, 1}.check(t, g, g, p, func(x, y, w uint64) uint64 {
			if w != 0 {
				return x
			}
			return y
		})
	}
	g := integers(32)
	operation{"slct.u32.s32 %z, %x, %y, %w;", 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
		if sext(w, 32) >= 0 {
			return x
		}
		return y
	})
	operation{"slct.b64.f32 %z, %x, %y, %w;", 64, 64, 64, 32}.check(t, integers(64), integers(64), numbers(formats[tF32]), func(x, y, w uint64) uint64 {
		if float32of(w) >= 0 {
			return x
		}
		return y
	})
}

func TestTestp(t *testing.T) {
	for _, ty := range []typ{tF32, tF64} {
		f := formats[ty]
		for name, want := range map[string]func(e, m uint64) bool{
			"finite":     func(e, _ uint64) bool { return e != mask(f.exp) },
			"infinite":   func(e, m uint64) bool { return e == mask(f.exp) && m == 0 },
			"number":     func(e, m uint64) bool { return e != mask(f.exp) || m == 0 },
			"notanumber": func(e, m uint64) bool { return e == mask(f.exp) && m != 0 },
			"normal":     func(e, _ uint64) bool { return e != 0 && e != mask(f.exp) },
			"subnormal":  func(e, m uint64) bool { return e == 0 && m != 0 },
		} {
			operation{fmt.Sprintf("testp.%s.%s %%z, %%x;", name, ty), 1, ty.bits(), 0, 0}.check(t, numbers(f), nil, nil, func(x, _, _ uint64) uint64 {
				return bit(want(x>>f.man&mask(f.exp), x&mask(f.man)))
			})
		}
	}
}

func TestMove(t *testing.T) {
	g := integers(64)
	operation{"{ .reg .b16 %a<4>; mov.b64 {%a0, %a1, %a2, %a3}, %x; mov.b64 %z, {%a3, %a1, %a2, %a0}; }", 64, 64, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
		return x>>48 | x&0xffffffff0000&^0xffff | x<<48
	})
	operation{"{ .reg .b32 %a; mov.b64 {_, %a}, %x; mov.b64 %z, {%a, %a}; }", 64, 64, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
		return x>>32 | x>>32<<32
	})
	operation{"{ .reg .b16 %a, %b; mov.b32 {%a, %b}, %x; mov.b32 %z, {%b, 7}; }", 32, 32, 0, 0}.check(t, integers(32), nil, nil, func(x, _, _ uint64) uint64 {
		return x>>16 | 7<<16
	})
	for text, want := range map[string]uint64{
		"mov.b32 %z, 0f3FC00000;": f32bits(1.5), "mov.f32 %z, -1.5;": f32bits(-1.5), "mov.u32 %z, -1;": mask(32),
		"mov.b32 %z, 0x10u;": 16, "mov.b32 %z, WARP_SZ;": 32, "mov.u32 %z, %laneid;": 0, "mov.u32 %z, %lanemask_lt;": 0,
		"mov.u32 %z, %nctaid.y;": 1, "mov.u32 %z, %lanemask_ge;": mask(32), "mov.u32 %z, %nwarpid;": 1,
		"mov.u32 %z, %total_smem_size;": 0,
	} {
		if got := (operation{text, 32, 0, 0, 0}).run(t, [][3]uint64{{}}); got[0] != want {
			t.Errorf("%s: got %#x, want %#x", text, got[0], want)
		}
	}
	if got := (operation{"mov.f64 %z, 0d3FF8000000000000;", 64, 0, 0, 0}).run(t, [][3]uint64{{}}); got[0] != math.Float64bits(1.5) {
		t.Errorf("mov.f64: got %#x", got[0])
	}
}

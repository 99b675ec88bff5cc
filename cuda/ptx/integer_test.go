package ptx

import (
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// value is the number that bits of a type are.
func value(t typ, v uint64) *big.Int {
	if t.signed() {
		return big.NewInt(sext(v, t.bits()))
	}
	return new(big.Int).SetUint64(v)
}

func lowBits(x *big.Int, width int) uint64 {
	m := new(big.Int).SetUint64(mask(width))
	return m.And(m, x).Uint64()
}

// TestIntegerArithmetic compares with big.Int.
func TestIntegerArithmetic(t *testing.T) {
	bigger := func(x, y *big.Int) *big.Int {
		if x.Cmp(y) > 0 {
			return x
		}
		return y
	}
	n := func() *big.Int { return new(big.Int) }
	ops := []struct {
		text string
		f    func(x, y, w *big.Int, width int) *big.Int
	}{
		{"add.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, _ int) *big.Int { return n().Add(x, y) }},
		{"sub.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, _ int) *big.Int { return n().Sub(x, y) }},
		{"mul.lo.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, _ int) *big.Int { return n().Mul(x, y) }},
		{"mul.hi.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, width int) *big.Int { return n().Rsh(n().Mul(x, y), uint(width)) }},
		{"mad.lo.%s %%z, %%x, %%y, %%w;", func(x, y, w *big.Int, _ int) *big.Int { return n().Add(n().Mul(x, y), w) }},
		{"mad.hi.%s %%z, %%x, %%y, %%w;", func(x, y, w *big.Int, width int) *big.Int {
			return n().Add(n().Rsh(n().Mul(x, y), uint(width)), w)
		}},
		{"max.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, _ int) *big.Int { return bigger(x, y) }},
		{"min.%s %%z, %%x, %%y;", func(x, y, _ *big.Int, _ int) *big.Int { return n().Neg(bigger(n().Neg(x), n().Neg(y))) }},
		{"sad.%s %%z, %%x, %%y, %%w;", func(x, y, w *big.Int, _ int) *big.Int { return n().Add(w, n().Abs(n().Sub(x, y))) }},
	}
	for _, ty := range []typ{tU16, tS16, tU32, tS32, tU64, tS64} {
		width := ty.bits()
		g := integers(width)
		for _, op := range ops {
			operation{fmt.Sprintf(op.text, ty), width, width, width, width}.check(t, g, g, g, func(x, y, w uint64) uint64 {
				return lowBits(op.f(value(ty, x), value(ty, y), value(ty, w), width), width)
			})
		}
		divisor := func(r *rand.Rand) uint64 { return max(g(r), 1) }
		operation{fmt.Sprintf("div.%s %%z, %%x, %%y;", ty), width, width, width, 0}.check(t, g, divisor, nil, func(x, y, _ uint64) uint64 {
			return lowBits(n().Quo(value(ty, x), value(ty, y)), width)
		})
		operation{fmt.Sprintf("rem.%s %%z, %%x, %%y;", ty), width, width, width, 0}.check(t, g, divisor, nil, func(x, y, _ uint64) uint64 {
			return lowBits(n().Rem(value(ty, x), value(ty, y)), width)
		})
		if ty.signed() {
			operation{fmt.Sprintf("abs.%s %%z, %%x;", ty), width, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
				return lowBits(n().Abs(value(ty, x)), width)
			})
			operation{fmt.Sprintf("neg.%s %%z, %%x;", ty), width, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 { return -x & mask(width) })
		}
		if width == 64 {
			continue
		}
		operation{fmt.Sprintf("mul.wide.%s %%z, %%x, %%y;", ty), 2 * width, width, width, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
			return lowBits(n().Mul(value(ty, x), value(ty, y)), 2*width)
		})
		operation{fmt.Sprintf("mad.wide.%s %%z, %%x, %%y, %%w;", ty), 2 * width, width, width, 2 * width}.check(t, g, g, integers(2*width), func(x, y, w uint64) uint64 {
			return lowBits(n().Add(n().Mul(value(ty, x), value(ty, y)), n().SetUint64(w)), 2*width)
		})
	}
	g := integers(32)
	operation{"add.sat.s32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		return uint64(min(max(sext(x, 32)+sext(y, 32), -1<<31), 1<<31-1)) & mask(32)
	})
	operation{"sub.sat.s32 %z, %x, %y;", 32, 32, 32, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		return uint64(min(max(sext(x, 32)-sext(y, 32), -1<<31), 1<<31-1)) & mask(32)
	})
}

// TestCarry adds and subtracts 64 bits in two halves.
func TestCarry(t *testing.T) {
	g := integers(64)
	split := "{ .reg .b32 %a<2>; .reg .b32 %b<2>; mov.b64 {%a0, %a1}, %x; mov.b64 {%b0, %b1}, %y; "
	operation{split + "add.cc.u32 %a0, %a0, %b0; addc.u32 %a1, %a1, %b1; mov.b64 %z, {%a0, %a1}; }", 64, 64, 64, 0}.check(t, g, g, nil,
		func(x, y, _ uint64) uint64 { return x + y })
	operation{split + "sub.cc.s32 %a0, %a0, %b0; subc.cc.s32 %a1, %a1, %b1; mov.b64 %z, {%a0, %a1}; }", 64, 64, 64, 0}.check(t, g, g, nil,
		func(x, y, _ uint64) uint64 { return x - y })
	operation{"add.cc.u64 %z, %x, %y; addc.u64 %z, 0, 0;", 64, 64, 64, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		_, carry := bits.Add64(x, y, 0)
		return carry
	})
	operation{"sub.cc.u64 %z, %x, %y; addc.cc.u64 %z, -1, 0; subc.u64 %z, 5, 0;", 64, 64, 64, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 {
		_, borrow := bits.Sub64(x, y, 0)
		return 5 - borrow // -1 and the borrow carry if there is one
	})
}

func TestBitInstructions(t *testing.T) {
	for _, ty := range []typ{tB16, tB32, tB64} {
		width := ty.bits()
		g := integers(width)
		for text, f := range map[string]func(x, y uint64) uint64{
			"and.%s %%z, %%x, %%y;": func(x, y uint64) uint64 { return x & y },
			"or.%s %%z, %%x, %%y;":  func(x, y uint64) uint64 { return x | y },
			"xor.%s %%z, %%x, %%y;": func(x, y uint64) uint64 { return x ^ y },
			"not.%s %%z, %%x;":      func(x, _ uint64) uint64 { return ^x & mask(width) },
			"cnot.%s %%z, %%x;": func(x, _ uint64) uint64 {
				if x == 0 {
					return 1
				}
				return 0
			},
		} {
			operation{fmt.Sprintf(text, ty), width, width, width, 0}.check(t, g, g, nil, func(x, y, _ uint64) uint64 { return f(x, y) })
		}
		amount := integers(32)
		operation{fmt.Sprintf("shl.%s %%z, %%x, %%y;", ty), width, width, 32, 0}.check(t, g, amount, nil, func(x, y, _ uint64) uint64 {
			return lowBits(new(big.Int).Lsh(new(big.Int).SetUint64(x), uint(min(y, 70))), width)
		})
		for _, kind := range []string{"u", "s", "b"} {
			operation{fmt.Sprintf("shr.%s%d %%z, %%x, %%y;", kind, width), width, width, 32, 0}.check(t, g, amount, nil, func(x, y, _ uint64) uint64 {
				if kind == "s" {
					return uint64(sext(x, width)>>min(y, 63)) & mask(width)
				}
				return x >> min(y, 64)
			})
		}
	}
	g := integers(32)
	for _, width := range []int{32, 64} {
		g := integers(width)
		operation{fmt.Sprintf("popc.b%d %%z, %%x;", width), 32, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
			return uint64(strings.Count(fmt.Sprintf("%b", x), "1"))
		})
		operation{fmt.Sprintf("clz.b%d %%z, %%x;", width), 32, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
			n := uint64(0)
			for n < uint64(width) && x>>(uint64(width)-1-n)&1 == 0 {
				n++
			}
			return n
		})
		operation{fmt.Sprintf("brev.b%d %%z, %%x;", width), width, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
			v := uint64(0)
			for i := range width {
				v |= x >> i & 1 << (width - 1 - i)
			}
			return v
		})
		for _, kind := range []string{"u", "s"} {
			for _, amount := range []string{"", ".shiftamt"} {
				operation{fmt.Sprintf("bfind%s.%s%d %%z, %%x;", amount, kind, width), 32, width, 0, 0}.check(t, g, nil, nil, func(x, _, _ uint64) uint64 {
					sign := uint64(0)
					if kind == "s" {
						sign = x >> (width - 1) & 1
					}
					for i := width - 1; i >= 0; i-- {
						if x>>i&1 != sign {
							if amount != "" {
								return uint64(width - 1 - i)
							}
							return uint64(i)
						}
					}
					return mask(32)
				})
			}
			operation{fmt.Sprintf("bfe.%s%d %%z, %%x, %%y, %%w;", kind, width), width, width, 32, 32}.check(t, g, integers(32), integers(32), func(x, y, w uint64) uint64 {
				return referenceBFE(x, int(y&255), int(w&255), width, kind == "s")
			})
		}
		operation{fmt.Sprintf("{ .reg .b32 %%p, %%l; cvt.u32.u64 %%p, %%v3; shr.u32 %%l, %%p, 8; bfi.b%d %%z, %%x, %%y, %%p, %%l; }", width), width, width, width, 0}.check(t, g, g, integers(16), func(x, y, w uint64) uint64 {
			pos, length := int(w&255), int(w>>8&255)
			for i := 0; i < length && pos+i < width; i++ {
				y = y&^(1<<(pos+i)) | x>>i&1<<(pos+i)
			}
			return y
		})
	}
	for _, form := range []string{"l.wrap", "l.clamp", "r.wrap", "r.clamp"} {
		operation{"shf." + form + ".b32 %z, %x, %y, %w;", 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
			n := min(w, 32)
			if strings.HasSuffix(form, "wrap") {
				n = w % 32
			}
			both := new(big.Int).SetUint64(y<<32 | x)
			if form[0] == 'l' {
				return lowBits(both.Rsh(both.Lsh(both, uint(n)), 32), 32)
			}
			return lowBits(both.Rsh(both, uint(n)), 32)
		})
	}
	for _, table := range []int{0x00, 0x96, 0xe8, 0xca, 0x1b, 0xff} {
		operation{fmt.Sprintf("lop3.b32 %%z, %%x, %%y, %%w, %d;", table), 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
			v := uint64(0)
			for i := range 32 {
				v |= uint64(table) >> (x>>i&1<<2 | y>>i&1<<1 | w>>i&1) & 1 << i
			}
			return v
		})
	}
}

// referenceBFE is the text of the PTX manual.
func referenceBFE(a uint64, pos, length, width int, signed bool) uint64 {
	msb := width - 1
	bit := func(i int) uint64 { return a >> i & 1 }
	sbit := uint64(0)
	if signed && length > 0 {
		sbit = bit(min(pos+length-1, msb))
	}
	d := uint64(0)
	for i := 0; i <= msb; i++ {
		if i < length && pos+i <= msb {
			d |= bit(pos+i) << i
		} else {
			d |= sbit << i
		}
	}
	return d
}

func TestPermute(t *testing.T) {
	g := integers(32)
	operation{"prmt.b32 %z, %x, %y, %w;", 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
		v := uint64(0)
		for i := range 4 {
			sel := w >> (4 * i) & 15
			b := byte((y<<32 | x) >> (8 * (sel & 7)))
			if sel&8 != 0 {
				b = byte(int8(b) >> 7)
			}
			v |= uint64(b) << (8 * i)
		}
		return v
	})
	// The manual's tables, for selectors 0 to 3, of the bytes 0 to 7.
	for mode, want := range map[string][4]uint64{
		"f4e": {0x03020100, 0x04030201, 0x05040302, 0x06050403}, "b4e": {0x05060700, 0x06070001, 0x07000102, 0x00010203},
		"rc8": {0, 0x01010101, 0x02020202, 0x03030303}, "ecl": {0x03020100, 0x03020101, 0x03020202, 0x03030303},
		"ecr": {0, 0x01010100, 0x02020100, 0x03020100}, "rc16": {0x01000100, 0x03020302, 0x01000100, 0x03020302},
	} {
		var operands [][3]uint64
		for i := range uint64(4) {
			operands = append(operands, [3]uint64{0x03020100, 0x07060504, i})
		}
		for i, got := range (operation{"prmt.b32." + mode + " %z, %x, %y, %w;", 32, 32, 32, 32}).run(t, operands) {
			if got != want[i] {
				t.Errorf("prmt.%s with %d: got %#08x, want %#08x", mode, i, got, want[i])
			}
		}
	}
}

func TestDotProducts(t *testing.T) {
	g := integers(32)
	part := func(kind string, v uint64, i, width int) int64 {
		v = v >> (i * width) & mask(width)
		if kind == "s32" {
			return sext(v, width)
		}
		return int64(v)
	}
	for _, a := range []string{"u32", "s32"} {
		for _, b := range []string{"u32", "s32"} {
			operation{fmt.Sprintf("dp4a.%s.%s %%z, %%x, %%y, %%w;", a, b), 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
				s := int64(w)
				for i := range 4 {
					s += part(a, x, i, 8) * part(b, y, i, 8)
				}
				return uint64(s) & mask(32)
			})
			operation{fmt.Sprintf("dp2a.hi.%s.%s %%z, %%x, %%y, %%w;", a, b), 32, 32, 32, 32}.check(t, g, g, g, func(x, y, w uint64) uint64 {
				return uint64(int64(w)+part(a, x, 0, 16)*part(b, y, 2, 8)+part(a, x, 1, 16)*part(b, y, 3, 8)) & mask(32)
			})
		}
	}
}

package encode

import (
	"bytes"
	"testing"
)

// TestTiles compares with what the GNU assembler makes of the same instructions.
func TestTiles(t *testing.T) {
	const ax, dx, bx, si, r8, r9, r12, r13, r15 = 0, 2, 3, 6, 8, 9, 12, 13, 15
	for _, c := range []struct {
		text      string
		got, want []byte
	}{
		{"tileloadd (%rsi,%rbx,1),%tmm4", TileLoad(4, si, 0, bx), []byte{0xc4, 0xe2, 0x7b, 0x4b, 0x24, 0x1e}},
		{"tileloadd (%r8,%r9,1),%tmm7", TileLoad(7, r8, 0, r9), []byte{0xc4, 0x82, 0x7b, 0x4b, 0x3c, 0x08}},
		{"tileloadd (%r15,%rbx,1),%tmm0", TileLoad(0, r15, 0, bx), []byte{0xc4, 0xc2, 0x7b, 0x4b, 0x04, 0x1f}},
		{"tileloadd (%rax,%r12,1),%tmm1", TileLoad(1, ax, 0, r12), []byte{0xc4, 0xa2, 0x7b, 0x4b, 0x0c, 0x20}},
		{"tilestored %tmm3,(%rdx,%r12,1)", TileStore(3, dx, 0, r12), []byte{0xc4, 0xa2, 0x7a, 0x4b, 0x1c, 0x22}},
		{"tilestored %tmm2,(%rsi,%rbx,1)", TileStore(2, si, 0, bx), []byte{0xc4, 0xe2, 0x7a, 0x4b, 0x14, 0x1e}},
		{"tilestored %tmm3,4416(%rdx,%r12,1)", TileStore(3, dx, 4416, r12), []byte{0xc4, 0xa2, 0x7a, 0x4b, 0x9c, 0x22, 0x40, 0x11, 0, 0}},
		{"tileloadd 0x12345678(%r13,%rbx,1),%tmm1", TileLoad(1, r13, 0x12345678, bx), []byte{0xc4, 0xc2, 0x7b, 0x4b, 0x8c, 0x1d, 0x78, 0x56, 0x34, 0x12}},
		{"tdpbf16ps %tmm6,%tmm4,%tmm0", TileDot(0, 4, 6), []byte{0xc4, 0xe2, 0x4a, 0x5c, 0xc4}},
		{"tdpbf16ps %tmm7,%tmm5,%tmm3", TileDot(3, 5, 7), []byte{0xc4, 0xe2, 0x42, 0x5c, 0xdd}},
		{"tilezero %tmm3", TileZero(3), []byte{0xc4, 0xe2, 0x7b, 0x49, 0xd8}},
		{"ldtilecfg (%rdx)", TileConfig(dx), []byte{0xc4, 0xe2, 0x78, 0x49, 0x02}},
		{"ldtilecfg (%r8)", TileConfig(r8), []byte{0xc4, 0xc2, 0x78, 0x49, 0x00}},
		{"prefetchw 0x40(%rax)", PrefetchW(ax, 64), []byte{0x0f, 0x0d, 0x48, 0x40}},
		{"tilerelease", TileRelease(), []byte{0xc4, 0xe2, 0x78, 0x49, 0xc0}},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s is % x, want % x", c.text, c.got, c.want)
		}
	}
}

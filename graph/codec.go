package graph

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// A Codec is how a row of f32 travels in blocks: neighbouring elements share a scale, by
// which their codes are multiplied. Blocks do not go beyond a row, so that what a token
// becomes does not depend on its company; the last of a row is filled up with zeros, and
// travels whole. kernels/codec says what codes mean.
type Codec struct {
	Kind  CodecKind
	Block int // elements: a power of two from MinBlock to MaxBlock
}

// CodecKind is what the codes of a block are.
type CodecKind uint8

// The kinds of codes.
const (
	Int8     CodecKind = iota // whole numbers from -127 to 127
	Int4                      // from -7 to 7, two in a byte
	E4M3                      // fp8 of 3 bits of mantissa (OCP 8-bit floating point 1.0): to 448, no infinity
	E5M2                      // fp8 of 2 bits of mantissa: f16 cut short, to 57344
	Scaled16                  // f16, with a scale for what is beyond its range
	codecKinds
)

var codecNames = [codecKinds]string{"int8", "int4", "e4m3", "e5m2", "scaled16"}

// String is the name that payloads have: int8.
func (k CodecKind) String() string { return codecNames[k] }

// CodecKinds lists the kinds.
func CodecKinds() []CodecKind { return []CodecKind{Int8, Int4, E4M3, E5M2, Scaled16} }

// Block sizes, and the bytes of a scale: a bf16, which has the range of f32.
const (
	MinBlock, MaxBlock, DefaultBlock = 16, 2048, 32

	ScaleBytes = 2
)

// Formats of codecs follow the others: eight block sizes of each kind.
const (
	firstCodec = DType(64)
	blockSizes = 8
)

// NewCodec reads a codec: its kind, and after a slash the elements of a block, which
// are DefaultBlock without: int8, e4m3/64. Where the text names none, ok is false; a
// block size that does not exist is an error.
func NewCodec(text string) (c Codec, ok bool, err error) {
	name, block, has := strings.Cut(text, "/")
	c.Block = DefaultBlock
	for i, k := range codecNames {
		if k == name {
			c.Kind, ok = CodecKind(i), true
		}
	}
	if !ok || !has {
		return c, ok, nil
	}
	c.Block, err = strconv.Atoi(block)
	if err != nil || c.Block < MinBlock || c.Block > MaxBlock || c.Block&(c.Block-1) != 0 {
		return c, true, fmt.Errorf("block size is %q; it must be a power of two from %d to %d", block, MinBlock, MaxBlock)
	}
	return c, true, nil
}

// String is kind/block: int8/32.
func (c Codec) String() string { return fmt.Sprintf("%s/%d", c.Kind, c.Block) }

// DType is the number format of what is in the codec.
func (c Codec) DType() DType {
	return firstCodec + DType(c.Kind)*blockSizes + DType(bits.TrailingZeros(uint(c.Block/MinBlock)))
}

// Codec is the codec of a format; false where it is none.
func (d DType) Codec() (Codec, bool) {
	k := d - firstCodec
	if d < firstCodec || k >= DType(codecKinds)*blockSizes {
		return Codec{}, false
	}
	return Codec{CodecKind(k / blockSizes), MinBlock << (k % blockSizes)}, true
}

// InBlocks reports whether d is the format of a codec.
func (d DType) InBlocks() bool { _, ok := d.Codec(); return ok }

// Bits is the size of a code.
func (c Codec) Bits() int {
	switch c.Kind {
	case Int4:
		return 4
	case Scaled16:
		return 16
	}
	return 8
}

// BlockBytes is the size of a block: its scale, and its codes after that.
func (c Codec) BlockBytes() int { return ScaleBytes + c.Block*c.Bits()/8 }

// RowBytes is the size of a row of n elements: ceil(n/Block) blocks.
func (c Codec) RowBytes(n int) int { return (n + c.Block - 1) / c.Block * c.BlockBytes() }

// RowBytes is the size of a row of n elements, in any format but those of weights in blocks.
func (d DType) RowBytes(n int) int {
	if c, ok := d.Codec(); ok {
		return c.RowBytes(n)
	}
	return n * d.Bytes()
}

// inRows checks that a value in a codec has whole rows everywhere.
func (t Type) inRows() error {
	switch {
	case len(t.Dims) < 2 || t.Dims[0].Sym == 0 || t.Ragged():
		return errors.New("blocks are of rows of a batch: the first axis must be t, s or o, and a second one have columns")
	case t.Layout.Kind == Sharded && !t.Layout.ByBatch():
		return errors.New("its columns are split; rows in blocks stay whole")
	}
	return nil
}

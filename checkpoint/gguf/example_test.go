package gguf_test

import (
	"bytes"
	"fmt"

	"github.com/krait-ml/krait/checkpoint/gguf"
)

func Example() {
	// A file has values under keys, and tensors.
	var b bytes.Buffer
	err := gguf.Write(&b, []gguf.Pair{{Key: "general.architecture", Value: "mamba"}, {Key: "mamba.block_count", Value: uint32(24)}},
		[]gguf.Tensor{{Name: "output_norm.weight", Type: gguf.BF16, Shape: []int{2}, Data: []byte{0x80, 0x3f, 0x00, 0x40}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := gguf.Parse("in memory", b.Bytes())
	if err != nil {
		fmt.Println(err)
		return
	}
	blocks, _ := f.Value("mamba.block_count")
	norm, _ := f.Tensor("output_norm.weight")
	values, err := norm.Float32s()
	fmt.Println(blocks, norm.Type, norm.Shape, values, err)
	// Output: 24 BF16 [2] [1 2] <nil>
}

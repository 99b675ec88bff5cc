package safetensors_test

import (
	"bytes"
	"fmt"
	"log"
	"strings"

	"github.com/krait-ml/krait/checkpoint/safetensors"
)

// A file is written, and read from memory; [safetensors.Open] maps one.
func Example() {
	var file bytes.Buffer
	w := safetensors.Tensor{Name: "w", DType: "F32", Shape: []int{2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 192}}
	if err := safetensors.Write(&file, []safetensors.Tensor{w}, map[string]string{"format": "pt"}); err != nil {
		log.Fatal(err)
	}
	f, err := safetensors.Parse("my.safetensors", file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	t, ok := f.Tensor("w")
	values, err := t.Float64s()
	fmt.Println(f.Names(), t.DType, t.Shape, values, ok, err)

	_, err = safetensors.Parse("cut.safetensors", file.Bytes()[:file.Len()-1])
	what, todo, _ := strings.Cut(err.Error(), " of data: ")
	fmt.Println(what)
	fmt.Println(todo)
	// Output:
	// [w] F32 [2] [1 -2] true <nil>
	// cut.safetensors: tensor "w": data_offsets [0, 8] reach beyond the 7 bytes
	// the file is truncated; download it again
}

package torchfile_test

import (
	"fmt"

	"github.com/krait-ml/krait/checkpoint/torchfile"
)

func Example() {
	f, err := torchfile.Open("testdata/python.bin")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		fmt.Println(name, t.DType, t.Shape, len(t.Data), "bytes")
	}
	// Output:
	// h F16 [3] 6 bytes
	// n I64 [] 8 bytes
	// p F16 [2 1] 4 bytes
	// tied F32 [2 4] 32 bytes
	// w F32 [3 4] 48 bytes
}

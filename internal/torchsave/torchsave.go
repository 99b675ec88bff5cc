// Package torchsave writes files as PyTorch's torch.save does, for tests of what reads them.
package torchsave

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
)

// Tensor is one of a state dict.
type Tensor struct {
	Name  string
	Class string // FloatStorage, HalfStorage, …
	Shape []int
	Elems int
	Data  []byte
}

// Program is a data.pkl of a state dict whose tensors have a storage each.
func Program(tensors []Tensor) []byte {
	var b bytes.Buffer
	b.WriteString("\x80\x02ccollections\nOrderedDict\n)R(")
	for i, t := range tensors {
		text(&b, t.Name)
		b.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
		text(&b, "storage")
		fmt.Fprintf(&b, "ctorch\n%s\n", t.Class)
		text(&b, fmt.Sprint(i))
		text(&b, "cpu")
		number(&b, t.Elems)
		b.WriteString("tQK\x00(")
		strides := make([]int, len(t.Shape))
		step := 1
		for k := len(t.Shape) - 1; k >= 0; k-- {
			strides[k], step = step, step*t.Shape[k]
		}
		for _, n := range t.Shape {
			number(&b, n)
		}
		b.WriteString("t(")
		for _, n := range strides {
			number(&b, n)
		}
		b.WriteString("t\x89ccollections\nOrderedDict\n)RtR")
	}
	b.WriteString("u.")
	return b.Bytes()
}

func text(b *bytes.Buffer, s string) {
	b.WriteByte('X')
	_ = binary.Write(b, binary.LittleEndian, uint32(len(s)))
	b.WriteString(s)
}

func number(b *bytes.Buffer, n int) {
	b.WriteByte('J')
	_ = binary.Write(b, binary.LittleEndian, uint32(n))
}

// Archive is a file with a program and storages.
func Archive(program []byte, tensors []Tensor) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(name string, data []byte) error {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "archive/" + name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	err := put("data.pkl", program)
	for i, t := range tensors {
		if err == nil {
			err = put(fmt.Sprint("data/", i), t.Data)
		}
	}
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/krait-ml/krait/internal/goldens"
)

func Test(t *testing.T) {
	goldens.CI(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	main()
	os.Stdout = stdout
	w.Close()
	var out bytes.Buffer
	out.ReadFrom(r)
	if !bytes.HasSuffix(out.Bytes(), []byte("2 ranks: of the\n")) {
		t.Errorf("%q", out.String())
	}
}

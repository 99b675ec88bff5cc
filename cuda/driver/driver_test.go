package driver

import (
	"errors"
	"fmt"
	"testing"
)

func TestError(t *testing.T) {
	err := error(CUDA("cuMemAlloc_v2", OutOfMemory).Because("%s asked, %s free", Bytes(12.3e9), Bytes(1.2e9)))
	if want := "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; 12.3 GB asked, 1.2 GB free"; err.Error() != want {
		t.Errorf("%q\nwant %q", err, want)
	}
	wrapped := fmt.Errorf("rank 3: %w", err)
	if !errors.Is(wrapped, ErrOutOfMemory) || errors.Is(wrapped, ErrKernelFault) {
		t.Error("the kind is wrong")
	}
	if want := "rank 3: " + err.Error() + "\n" + hintMemory; Explain(wrapped) != want {
		t.Errorf("%q\nwant %q", Explain(wrapped), want)
	}
	if Explain(nil) != "" || Explain(errors.New("plain")) != "plain" {
		t.Error("Explain changes what it does not know")
	}
	cause := errors.New("cause")
	if e := (&Error{Call: "Gemm", Text: "wrong", Cause: cause}); !errors.Is(e, cause) || e.Error() != "Gemm: wrong" {
		t.Errorf("%v", e)
	}
}

// TestCodes: the tables are in order, and every kind of error occurs.
func TestCodes(t *testing.T) {
	kinds := map[error]bool{}
	for _, codes := range [][]code{cudaCodes, cublasCodes, ncclCodes} {
		for i, c := range codes {
			if i > 0 && c.code <= codes[i-1].code || c.name == "" || c.text == "" || c.kind != nil && c.hint == "" {
				t.Errorf("row %+v", c)
			}
			kinds[c.kind] = true
		}
	}
	for _, kind := range []error{ErrOutOfMemory, ErrNoDriver, ErrKernelFault, ErrDeviceLost} {
		if !kinds[kind] {
			t.Errorf("no code is a %v", kind)
		}
	}
	for _, e := range []*Error{CUDA("f", 12345), CUBLAS("f", 12345), NCCL("f", 12345)} {
		if e.Code != 12345 || e.Name == "" || e.Text == "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestGemmCheck(t *testing.T) {
	good := GemmCall{M: 2, N: 3, K: 4, LDA: 4, LDB: 4, LDC: 3}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for i, spoil := range []func(g *GemmCall){
		func(g *GemmCall) { g.M = 0 },
		func(g *GemmCall) { g.LDA = 3 },
		func(g *GemmCall) { g.LDB = 3 },
		func(g *GemmCall) { g.LDC = 2 },
		func(g *GemmCall) { g.M = 1 << 32 },
		func(g *GemmCall) { g.In, g.Out = TF32, TF32 },
		func(g *GemmCall) { g.In, g.Out = BF16, F16 },
		func(g *GemmCall) { g.Out = BF16 },
		func(g *GemmCall) { g.In = 9 },
	} {
		bad := good
		if spoil(&bad); bad.Check() == nil {
			t.Errorf("case %d passes", i)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 9999: "9999 bytes", 10000: "10.0 kB", 1234567: "1.2 MB", 80e9: "80.0 GB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

//go:build linux && (amd64 || arm64)

package nvidia

import (
	"fmt"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// The functions of cuBLAS.
const (
	cublasGetProperty symbol = iota
	cublasCreate
	cublasDestroy
	cublasSetStream
	cublasSetWorkspace
	cublasSetMathMode
	cublasGemmEx
)

var cublasNames = []string{
	cublasGetProperty:  "cublasGetProperty",
	cublasCreate:       "cublasCreate_v2",
	cublasDestroy:      "cublasDestroy_v2",
	cublasSetStream:    "cublasSetStream_v2",
	cublasSetWorkspace: "cublasSetWorkspace_v2",
	cublasSetMathMode:  "cublasSetMathMode",
	cublasGemmEx:       "cublasGemmEx",
}

// openBLAS opens cuBLAS: 13 needs a driver for CUDA 13.
func (d *cuda) openBLAS() (lib library, version string, err error) {
	names := []string{"libcublas.so.12"}
	if d.version >= 13000 {
		names = []string{"libcublas.so.13", "libcublas.so.12"}
	}
	wheel := "nvidia-cublas" // of CUDA 13 and later
	if d.version < 13000 {
		wheel += "-cu12"
	}
	hint := fmt.Sprintf("Install cuBLAS %d: with the CUDA toolkit, as a package (libcublas-%[1]d-0), or by pip install %s; "+
		"set KRAIT_CUDA_PATH to its folder if it is not found.", d.version/1000, wheel)
	handle, err := d.search.open(names...)
	if err != nil {
		return lib, "", missing("cuBLAS", hint, "%v", err)
	}
	lib = library{names: cublasNames, fail: driver.CUBLAS}
	if name := lib.bind(handle); name != "" {
		return lib, "", missing("cuBLAS", hint, "%s lacks %s", lib.path, name)
	}
	var major, minor int32
	for i, into := range []*int32{&major, &minor} {
		if err := lib.call(cublasGetProperty, uintptr(i), uintptr(unsafe.Pointer(into))); err != nil {
			return lib, "", err
		}
	}
	return lib, fmt.Sprintf("%d.%d", major, minor), nil
}

func (d *cuda) blasVersion() driver.Version {
	_, err := d.blas.get(d.openBLAS)
	return d.blas.describe("cuBLAS", err)
}

// gemm is a cuBLAS handle.
type gemm struct {
	c         *primary
	blas      *library
	handle    uintptr // 0 when closed
	workspace driver.Ptr
	bytes     int64
}

// scalars are what alpha and beta point to: the address of a variable of the
// package never changes.
var scalars = [2]float32{0, 1}

// Numbers of cuBLAS.
const (
	opN, opT           = 0, 1
	compute32F         = 68
	compute32FFastTF32 = 77
	mathFullReduction  = 16 // CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: sums stay in f32
	algoDefault        = -1
)

// dataType is the cudaDataType of a format.
var dataType = [...]uintptr{driver.F32: 0, driver.TF32: 0, driver.BF16: 14, driver.F16: 2}

// GEMM makes a cuBLAS handle.
func (c *primary) GEMM() (driver.GEMM, error) {
	blas, err := c.blas.get(c.openBLAS)
	if err != nil {
		return nil, err
	}
	if err := c.current(cuCtxGetCurrent); err != nil {
		return nil, err
	}
	g := &gemm{c: c, blas: blas}
	if err := blas.call(cublasCreate, uintptr(unsafe.Pointer(&g.handle))); err != nil {
		return nil, because(err, "device %d, with cuBLAS %s on a driver for CUDA %s", c.info.Index, c.blas.version, release(c.version))
	}
	if err := blas.call(cublasSetMathMode, g.handle, mathFullReduction); err != nil {
		blas.call(cublasDestroy, g.handle)
		return nil, err
	}
	return g, nil
}

func (g *gemm) SetStream(on driver.Stream) error {
	s, ok := on.(*stream)
	switch {
	case g.handle == 0:
		return closed("cublasSetStream_v2", "handle")
	case !ok:
		return foreign("cublasSetStream_v2", on)
	case s.handle == 0:
		return closed("cublasSetStream_v2", "stream")
	}
	if err := g.blas.quick(cublasSetStream, g.handle, s.handle); err != nil {
		return err
	}
	return g.setWorkspace() // a new stream makes cuBLAS forget the workspace
}

func (g *gemm) SetWorkspace(p driver.Ptr, bytes int64) error {
	if g.handle == 0 {
		return closed("cublasSetWorkspace_v2", "handle")
	}
	g.workspace, g.bytes = p, bytes
	return g.setWorkspace()
}

func (g *gemm) setWorkspace() error {
	if g.bytes == 0 {
		return nil
	}
	return g.blas.quick(cublasSetWorkspace, g.handle, uintptr(g.workspace), uintptr(g.bytes))
}

// Gemm calls cublasGemmEx. cuBLAS stores by columns: what it sees is
// Cᵀ[n m] = B[n k] · A[m k]ᵀ, each by columns.
func (g *gemm) Gemm(c *driver.GemmCall) error {
	if g.handle == 0 {
		return closed("cublasGemmEx", "handle")
	}
	if err := c.Check(); err != nil {
		return err
	}
	compute := uintptr(compute32F)
	if c.In == driver.TF32 {
		compute = compute32FFastTF32
	}
	beta := &scalars[0]
	if c.Accumulate {
		beta = &scalars[1]
	}
	in, algo := dataType[c.In], algoDefault
	err := g.blas.quick(cublasGemmEx, g.handle, opT, opN,
		uintptr(c.N), uintptr(c.M), uintptr(c.K),
		uintptr(unsafe.Pointer(&scalars[1])),
		uintptr(c.B), in, uintptr(c.LDB),
		uintptr(c.A), in, uintptr(c.LDA),
		uintptr(unsafe.Pointer(beta)),
		uintptr(c.C), dataType[c.Out], uintptr(c.LDC),
		compute, uintptr(algo))
	if err != nil {
		return because(err, "C[%d %d] %v = A[%d %d] · B[%d %d]ᵀ %v, rows of %d, %d and %d", c.M, c.N, c.Out, c.M, c.K, c.N, c.K, c.In, c.LDC, c.LDA, c.LDB)
	}
	return nil
}

func (g *gemm) Close() error {
	if g.handle == 0 {
		return closed("cublasDestroy_v2", "handle")
	}
	handle := g.handle
	g.handle = 0
	return g.blas.quick(cublasDestroy, handle)
}

package cpu

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// guarded is n elements at the end of memory, behind which there is none.
func guarded[E any](t *testing.T, n int) []E {
	const page = 4096
	var e E
	size := n * int(unsafe.Sizeof(e))
	whole := (size + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	if err := syscall.Mprotect(memory[whole:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*E)(unsafe.Pointer(&memory[whole-size])), n)
}

// TestMatmulStays: no element behind the operands and the result is touched.
func TestMatmulStays(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		for _, d := range weightTypes {
			for k := 1; k <= 35; k++ {
				tokens, n := 1+k%7, 4+k%4
				if k%8 == 0 {
					tokens = 25 + k%3 // 16-bit weights are widened into a buffer
				}
				x, w, y := table(graph.F32, tokens, k, k, 0), table(d, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
				x.F32, y.F32 = guarded[float32](t, tokens*k), guarded[float32](t, tokens*n)
				if d == graph.F32 {
					w.F32 = guarded[float32](t, n*k)
				} else {
					w.U16 = guarded[uint16](t, n*k)
				}
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				runAll(kernel, call)
			}
		}
	})
}

// TestMatmulStaysTiles is TestMatmulStays around the edges of tiles.
func TestMatmulStaysTiles(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, _ string, kernel kernels.Kernel) {
		for _, tokens := range []int{1, 15, 16, 17, 66} {
			for _, n := range []int{1, 16, 17, 31, 32, 33, 64} {
				for _, k := range []int{512, 513, 543} {
					x, w, y := table(graph.F32, tokens, k, k, 0), table(graph.BF16, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
					x.F32, w.U16, y.F32 = guarded[float32](t, tokens*k), guarded[uint16](t, n*k), guarded[float32](t, tokens*n)
					call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
					if kernel.Scratch != nil {
						call.Scratch = guarded[byte](t, kernel.Scratch(call))
					}
					if b := kernel.Before; b != nil {
						b.Run(call, 0, b.Units(call))
					}
					kernel.Run(call, 0, kernel.Units(call))
				}
			}
		}
	})
}

// TestMatmulStaysPanels is TestMatmulStays where many tokens go past panels.
func TestMatmulStaysPanels(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, kernel kernels.Kernel) {
		for i, d := range weightTypes {
			for _, n := range []int{1, 15, 16, 24, 48, 49, 65} {
				tokens, k := 64+n%4, []int{512, 513, 1051}[(n+i)%3]
				x, w, y := table(graph.F32, tokens, k, k, 0), table(d, n, k, k, 0), table(graph.F32, tokens, n, n, 0)
				x.F32, y.F32 = guarded[float32](t, tokens*k), guarded[float32](t, tokens*n)
				if d == graph.F32 {
					w.F32 = guarded[float32](t, n*k)
				} else {
					w.U16 = guarded[uint16](t, n*k)
				}
				fill(&x, func() float32 { return 1 })
				fill(&w, func() float32 { return 1 })
				call := &kernels.Call{Args: []kernels.Tensor{x, w}, Results: []kernels.Tensor{y}}
				if kernel.Scratch != nil {
					call.Scratch = guarded[byte](t, (kernel.Scratch(call)+63)&^63)
				}
				if b := kernel.Before; b != nil {
					b.Run(call, 0, b.Units(call))
				}
				kernel.Run(call, 0, kernel.Units(call))
				for i, v := range y.F32 {
					if v != float32(k) {
						t.Fatalf("%s, %d rows of %d in %s: %g at %d", isa, n, k, d, v, i)
					}
				}
			}
		}
	})
}

package cpu

import (
	"maps"
	"slices"
	"testing"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// here leaves what is of instruction sets that this machine has. CI lists those that it lacks.
func here[V any](all map[string]V) map[string]V {
	maps.DeleteFunc(all, func(isa string, _ V) bool { return !slices.Contains(ISAs(), isa) })
	return all
}

func converters() map[string]*converter {
	return here(map[string]*converter{"avx2": &convertAVX2, "avx512": &convertAVX512})
}

func vectorProducts() map[string]*products {
	all := here(map[string]*products{"avx2": &productsAVX2, "avx512": &productsAVX512})
	if all["avx512"] != nil {
		all["without"] = without()
	}
	return all
}

func vectorBlocks() map[graph.DType]blockWeights {
	if !hasAVX2() {
		return nil
	}
	return blocksAVX2
}

// without has the products of AVX-512 on processors that have no integer products.
func without() *products {
	p := productsAVX512
	p.blocks = blocksAVX2
	return &p
}

func TestMatmulBlocksWithout(t *testing.T) {
	eachISA(t, "matmul", func(t *testing.T, isa string, _ kernels.Kernel) {
		if isa == "avx512" {
			matmulBlocks(t, isa, kernels.Kernel{Units: without().units, Run: without().matmul})
		}
	})
}

package cpu

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/krait-ml/krait/kernels"
)

// ISAVariable is the environment variable that forces an instruction set.
const ISAVariable = "KRAIT_CPU"

// plain is the instruction set of what the Go compiler makes.
const plain = "plain"

// What instruction sets have, beside the functions: for an operation that a set does
// not have, the best before it is taken.
var avx2, avx512, neon = kernels.Set{}, kernels.Set{}, kernels.Set{}

// wideProducts are the products of whole blocks of a prompt, or of all tokens ([ByPosition]), by
// the number format of activations and the instruction set. No two serve the same weights.
var wideProducts = map[string]map[string][]Wide{"f32": {}, "bf16": {}}

// instructionSets lists them, each better than those before it.
var instructionSets = []instructionSet{
	{"avx2", hasAVX2, avx2},
	{"avx512", hasAVX512, avx512},
	{"avx512_bf16", hasAVX512BF16, nil},
	{"amx", hasAMX, nil},
	{"neon", hasNEON, neon},
}

type instructionSet struct {
	name string
	has  func() bool // the processor, and the system saves its registers
	set  kernels.Set
}

// hasNEON: all processors of that architecture do.
func hasNEON() bool { return runtime.GOARCH == "arm64" }

// ISAs names the instruction sets that can be used here, the best last.
func ISAs() []string {
	names := []string{plain}
	for _, s := range instructionSets {
		if s.has() {
			names = append(names, s.name)
		}
	}
	return names
}

// ForISA is the set for an instruction set that can be used here: plain, avx2, avx512, avx512_bf16,
// amx or neon.
func ForISA(name string) (kernels.Set, error) {
	return changed(name, "f32", func(narrow kernels.Kernel) kernels.Kernel { return narrow })
}

// changed is the set for an instruction set with another matmul, and the wide ones for a number
// format of activations. It has experts and operations that are fused for other devices, by these
// products.
func changed(isa, math string, matmul func(narrow kernels.Kernel) kernels.Kernel) (kernels.Set, error) {
	set, err := narrowForISA(isa)
	if err != nil {
		return nil, err
	}
	set["matmul"] = matmul(set["matmul"])
	for _, w := range wideProducts[math][isa] {
		set["matmul"] = ByPosition(set["matmul"], w)
	}
	maps.Copy(set, Experts(set))
	compose(set)
	return set, nil
}

// WideMaths lists the number formats of activations ([ForMath]) in which an instruction set has
// wide products ([ByPosition]).
func WideMaths(isa string) (list []string) {
	for math, sets := range wideProducts {
		if _, ok := sets[isa]; ok {
			list = append(list, math)
		}
	}
	slices.Sort(list)
	return list
}

// narrowForISA is a copy of the set for an instruction set, without wide products.
func narrowForISA(name string) (kernels.Set, error) {
	taken.Store(true)
	known, set := []string{plain}, maps.Clone(Kernels)
	if name == plain {
		return set, nil
	}
	for _, s := range instructionSets {
		known = append(known, s.name)
		maps.Copy(set, s.set)
		switch {
		case s.name == name && s.has():
			return set, nil
		case s.name == name:
			return nil, fmt.Errorf("instruction set %s cannot be used on this machine: it has %s", name, strings.Join(ISAs(), ", "))
		}
	}
	return nil, fmt.Errorf("unknown instruction set %q; it must be one of %s", name, strings.Join(known, ", "))
}

// ChosenISA names the instruction set that $KRAIT_CPU asks for, without it the best that can be
// used here.
func ChosenISA() (string, error) {
	name := os.Getenv(ISAVariable)
	if name == "" {
		list := ISAs()
		return list[len(list)-1], nil
	}
	if _, err := ForISA(name); err != nil {
		return "", fmt.Errorf("%s: %w", ISAVariable, err)
	}
	return name, nil
}

// Chosen is the set for ChosenISA, as it was when the process first asked.
var Chosen = sync.OnceValues(func() (kernels.Set, error) {
	name, err := ChosenISA()
	if err != nil {
		return nil, err
	}
	return ForISA(name)
})

// ForMath is the set for a number format of activations in products: the chosen one for f32 (or an
// empty one), [Rounding] for bf16, [Integers] for int8.
func ForMath(math string) (kernels.Set, error) {
	choose := maths[math]
	if choose == nil {
		return nil, fmt.Errorf("math is %q; it must be f32, bf16 or int8", math)
	}
	return choose()
}

var maths = map[string]func() (kernels.Set, error){"": Chosen, "f32": Chosen, "bf16": Rounding, "int8": Integers}

// integerProducts are those of the instruction sets.
var integerProducts = map[string]*integers{plain: &plainIntegers}

// Integers is the chosen set with integer products: weights in blocks of whole numbers (those of
// [graph.DType.HasCodes]) are multiplied with activations that are rounded to 8 bits.
func Integers() (kernels.Set, error) {
	name, err := ChosenISA()
	if err != nil {
		return nil, err
	}
	return IntegersForISA(name)
}

// IntegersForISA is [Integers] for an instruction set.
func IntegersForISA(name string) (kernels.Set, error) {
	return changed(name, "f32", func(narrow kernels.Kernel) kernels.Kernel { return integerProducts[name].matmul(narrow) })
}

// Command gen writes the assembly of package kernels/cpu for amd64, and the Go file
// that declares it; gen/neon does so for arm64. It is a module of its own, so that Krait
// needs no assembler of others to build. In its folder:
//
//	go run .          # writes ../NAME_amd64.s and ../NAME_amd64.go for each generator
//	go run . NAME     # for this one
//	go run . -check   # fails where they are not what it would write
//
// A generator is in the file of its name. They share function.go (functions, parameters and
// loops), constants.go, lines.go (rows in memory), columns.go (loops over a row), tails.go (masks
// of what fills no vector), lanes.go (moves between lanes), vecmath.go and doubles.go (arithmetic),
// and gemm, short and blocks also products.go.
package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// generators by the name of what they write.
var generators = map[string]func(*build.Context){
	"amx":         amx,
	"blocks":      blocks,
	"codecs":      codecs,
	"conv":        conv,
	"convert":     convert,
	"delta":       delta,
	"elementwise": elementwise,
	"gemm":        gemm,
	"integers":    integers,
	"matrices":    matrices,
	"maxima":      maximum,
	"norm":        norm,
	"panels":      panels,
	"peak":        peak,
	"rotation":    rotations,
	"scan":        scan,
	"short":       short,
	"softmax":     softmaxes,
	"superblocks": superblocks,
}

func main() { common.Main(generators, run) }

// compiled is what a generator writes, with registers chosen.
func compiled(generate func(*build.Context)) (*ir.File, error) {
	c := build.NewContext()
	generate(c)
	file, err := c.Result()
	if err != nil {
		return nil, err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return nil, err
	}
	dotsAsNumbers(file)
	return file, lowRegisters(file)
}

func run(name string, generate func(*build.Context), check bool) error {
	file, err := compiled(generate)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, s := range file.Sections {
		switch s := s.(type) {
		case *ir.Function:
			s.Doc = common.Wrapped(strings.Join(s.Doc, " "))
		case *ir.Global:
			s.Data = inWords(s.Data)
		}
	}
	config := printer.Config{Name: "kernels/cpu/gen", Pkg: "cpu"}
	text, err := printer.NewGoAsm(config).Print(file)
	if err != nil {
		return err
	}
	if err := common.Write(text, "../"+name+"_amd64.s", check); err != nil {
		return err
	}
	if text, err = printer.NewStubs(config).Print(file); err != nil {
		return err
	}
	return common.Write(text, "../"+name+"_amd64.go", check)
}

// inWords is data that has no gaps and fills words of 8 bytes, in such words.
func inWords(data []ir.Datum) (words []ir.Datum) {
	var bytes []byte
	for _, d := range data {
		bits, err := strconv.ParseInt(d.Value.Asm()[1:], 0, 64)
		if err != nil { // above the largest int64
			unsigned, _ := strconv.ParseUint(d.Value.Asm()[1:], 0, 64)
			bits = int64(unsigned)
		}
		word := binary.LittleEndian.AppendUint64(nil, uint64(bits))
		bytes = append(bytes, word[:d.Value.Bytes()]...)
	}
	for i := 0; i < len(bytes); i += 8 {
		words = append(words, ir.NewDatum(i, operand.U64(binary.LittleEndian.Uint64(bytes[i:]))))
	}
	return words
}

// lowRegisters refuses functions for AVX2 with registers that only AVX-512 has: the
// allocator would give them where others are short.
func lowRegisters(file *ir.File) error {
	for _, f := range file.Functions() {
		if !strings.HasSuffix(f.Name, avx2.name) {
			continue
		}
		for _, i := range f.Instructions() {
			for _, r := range i.Registers() {
				if p := reg.ToPhysical(r); p != nil && p.Kind() == reg.KindVector && p.PhysicalIndex() >= 16 {
					return fmt.Errorf("%s needs %s", f.Name, p.Asm())
				}
			}
		}
	}
	return nil
}

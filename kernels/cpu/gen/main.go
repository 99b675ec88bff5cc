// Command gen writes the assembly of package kernels/cpu for amd64, and the Go file
// that declares it. It is a module of its own, so that Krait needs no assembler of
// others to build. In its folder:
//
//	go run .          # writes ../gemv_amd64.s and ../gemv_amd64.go
//	go run . -check   # fails where they are not what it would write
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

func main() {
	check := flag.Bool("check", false, "compare with the files, and write nothing")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	c := build.NewContext()
	gemv(c)
	file, err := c.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	config := printer.Config{Name: "kernels/cpu/gen", Pkg: "cpu"}
	for name, p := range map[string]printer.Printer{
		"../gemv_amd64.s":  printer.NewGoAsm(config),
		"../gemv_amd64.go": printer.NewStubs(config),
	} {
		if err := give(p, file, name, check); err != nil {
			return err
		}
	}
	return nil
}

// give writes a file, or compares it with what is there.
func give(p printer.Printer, file *ir.File, name string, check bool) error {
	text, err := p.Print(file)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(name, text, 0o666)
	}
	old, err := os.ReadFile(name)
	if err == nil && !bytes.Equal(old, text) {
		err = fmt.Errorf("%s is not what the generator gives: run go run . in kernels/cpu/gen", filepath.Base(name))
	}
	return err
}

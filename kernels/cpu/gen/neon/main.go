// Command neon writes the assembly of package kernels/cpu for arm64, and the Go file that declares
// it. In the folder of gen:
//
//	go run ./neon          # writes ../NAME_arm64.s and ../NAME_arm64.go for each generator
//	go run ./neon NAME     # for this one
//	go run ./neon -check   # fails where they are not what it would write
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/krait-ml/krait/kernels/cpu/gen/common"
)

// generators by the name of what they write.
var generators = map[string]func(*file){
	"blocks":      blocks,
	"convert":     convert,
	"elementwise": elementwise,
	"gemm":        gemm,
	"matrices":    matrices,
	"norm":        norm,
	"peak":        peak,
	"scan":        scan,
	"short":       short,
	"softmax":     softmaxes,
}

// file is a file of functions, and of the constants that they share.
type file struct {
	functions []*neon
	constants []uint64
}

// neon writes a function. Go's assembler has few instructions on vectors of floating-point numbers:
// those that it lacks are words, with what the word means as a comment.
type neon struct {
	*file
	name, signature, doc string
	lines                []line
	labels               map[string]int // the line that follows
	loops                [][2]int       // lines from a label to a branch back to it
	made                 int            // labels
	table                *register      // where the constants are, if it uses some
}

// line is an instruction or a label. In its text, %d is the number of a register.
type line struct {
	text      string
	word      uint32 // without its registers; 0 where Go's assembler knows the instruction
	registers []*register
}

// register is one of those for addresses, or for vectors, from a line to another.
type register struct {
	vector      bool
	first, last int
	number      int
}

func (f *file) function(name, signature, doc string) *neon {
	name += "NEON"
	g := &neon{file: f, name: name, signature: signature, doc: name + " " + doc, labels: map[string]int{}}
	f.functions = append(f.functions, g)
	return g
}

func (g *neon) address() *register { return &register{first: -1} }
func (g *neon) new() *register     { return &register{first: -1, vector: true} }

// do writes an instruction that Go's assembler has.
func (g *neon) do(text string, registers ...*register) { g.line(text, 0, registers) }

func (g *neon) line(text string, word uint32, registers []*register) {
	for _, r := range registers {
		if r.first < 0 {
			r.first = len(g.lines)
		}
		r.last = len(g.lines)
	}
	g.lines = append(g.lines, line{text, word, registers})
}

// arm writes one of the encodings as a word. The registers are in the order of its text.
func (g *neon) arm(instruction string, registers ...*register) {
	word, ok := encodings[instruction]
	if !ok {
		panic("no encoding of " + instruction)
	}
	g.line(armText(instruction), word, registers)
}

// armText is an instruction as an assembler of ARM's syntax takes it.
func armText(instruction string) string {
	name, operands, _ := strings.Cut(instruction, " ")
	var list []string
	for o := range strings.FieldsSeq(operands) {
		switch o[0] {
		case '#':
			list = append(list, o)
		case 's', 'd':
			if len(o) == 1 { // all of a register
				list = append(list, o+"%d")
				continue
			}
			fallthrough
		default:
			list = append(list, "v%d."+o)
		}
	}
	return name + " " + strings.Join(list, ", ")
}

// encoded is an instruction's word: registers go to bits 0, 5 and 16.
func encoded(word uint32, numbers []int) uint32 {
	for i, n := range numbers {
		word |= uint32(n) << []int{0, 5, 16}[i]
	}
	return word
}

// label is one that no other line of the function has.
func (g *neon) label(name string) string {
	g.made++
	return fmt.Sprintf("%s%d", name, g.made)
}

func (g *neon) at(label string) {
	g.labels[label] = len(g.lines)
	g.line(label+":", 0, nil)
}

// branch goes to a label. Where that stands before, the lines between are a loop.
func (g *neon) branch(op, label string) {
	if from, ok := g.labels[label]; ok {
		g.loops = append(g.loops, [2]int{from, len(g.lines)})
	}
	g.do(op + " " + label)
}

// loop repeats its body while n elements or more are left, and takes them off.
func (g *neon) loop(left *register, n int, body func()) {
	again, rest := g.label("loop"), g.label("rest")
	g.countdown(left, n, "BLT", rest)
	g.at(again)
	body()
	g.countdown(left, n, "BGE", again)
	g.at(rest)
	g.do(fmt.Sprintf("ADD $%d, R%%d, R%%d", n), left, left)
}

// countdown takes a number off, and branches as that says.
func (g *neon) countdown(left *register, n int, op, label string) {
	g.do(fmt.Sprintf("SUBS $%d, R%%d, R%%d", n), left, left)
	g.branch(op, label)
}

// place is where a parameter or a result lies, and its type.
func (g *neon) place(name string) (at int, kind string) {
	var kinds []string
	var names []string
	for _, part := range strings.Split(strings.NewReplacer("(", "", ")", ",").Replace(g.signature), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, k, _ := strings.Cut(part, " ")
		names, kinds = append(names, n), append(kinds, k)
	}
	for i := len(kinds) - 2; i >= 0; i-- {
		kinds[i] = cmp.Or(kinds[i], kinds[i+1])
	}
	for i, n := range names {
		size := 8
		if kinds[i] == "float32" {
			size = 4
		}
		at = (at + size - 1) / size * size
		if n == name {
			return at, kinds[i]
		}
		at += size
	}
	if name != "" {
		panic(g.name + " has no parameter " + name)
	}
	return (at + 7) / 8 * 8, ""
}

// param loads a parameter: a number, into all lanes of a vector.
func (g *neon) param(name string) *register {
	at, kind := g.place(name)
	from := fmt.Sprintf("%s+%d(FP)", name, at)
	if !strings.HasPrefix(kind, "float") {
		r := g.address()
		g.do("MOVD "+from+", R%d", r)
		return r
	}
	v := g.new()
	if kind == "float32" {
		g.do("FMOVS "+from+", F%d", v)
		g.arm("dup 4s s[0]", v, v)
	} else {
		g.do("FMOVD "+from+", F%d", v)
		g.arm("dup 2d d[0]", v, v)
	}
	return v
}

// stride is a parameter times the size of an element.
func (g *neon) stride(name string, size int) *register {
	r := g.param(name)
	g.do(fmt.Sprintf("LSL $%d, R%%d, R%%d", map[int]int{2: 1, 4: 2, 8: 3}[size]), r, r)
	return r
}

// rows are n addresses from base on that are a stride apart.
func (g *neon) rows(base, stride *register, n int) []*register {
	first := g.address()
	g.do("MOVD R%d, R%d", base, first)
	rows := []*register{first}
	for len(rows) < n {
		r := g.address()
		g.do("ADD R%d, R%d, R%d", stride, rows[len(rows)-1], r)
		rows = append(rows, r)
	}
	return rows
}

// constant loads one, of 8 bytes, into both halves of a vector.
func (g *neon) constant(bits uint64) *register {
	if g.table == nil {
		panic(g.name + " does not say that it has constants")
	}
	i := slices.Index(g.constants, bits)
	if i < 0 {
		i = len(g.constants)
		g.constants = append(g.constants, bits)
	}
	v := g.new()
	g.do(fmt.Sprintf("FMOVQ %d(R%%d), F%%d", 16*i), g.table, v)
	return v
}

// hasConstants comes before all that uses constants, outside of loops.
func (g *neon) hasConstants() {
	g.table = g.address()
	g.do("MOVD $constants<>(SB), R%d", g.table)
}

// assign gives registers numbers. One that lives when a loop begins, and is used in it, lives to
// the loop's end.
func (g *neon) assign() error {
	var all []*register
	for _, l := range g.lines {
		for _, r := range l.registers {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	for range g.loops { // of loops in loops
		for _, r := range all {
			for _, loop := range g.loops {
				if r.first < loop[0] && r.last >= loop[0] {
					r.last = max(r.last, loop[1])
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *register) int { return a.first - b.first })
	free := map[bool][]int{}
	for n := range 32 {
		free[true] = append(free[true], n)
		if n < 16 || n >= 19 && n < 27 { // others are of the linker, the system, the assembler and Go
			free[false] = append(free[false], n)
		}
	}
	var live []*register
	for _, r := range all {
		live = slices.DeleteFunc(live, func(old *register) bool {
			over := old.last <= r.first && old.first < r.first
			if over {
				free[old.vector] = append(free[old.vector], old.number)
			}
			return over
		})
		names := free[r.vector]
		if len(names) == 0 {
			return fmt.Errorf("%s has no register left at line %d: %s", g.name, r.first, g.lines[r.first].text)
		}
		r.number, free[r.vector] = names[0], names[1:]
		live = append(live, r)
	}
	return nil
}

// assembly is the text of a file, and declarations that of the Go file beside it.
func (f *file) assembly() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(generated + "\n#include \"textflag.h\"\n")
	for _, g := range f.functions {
		if err := g.assign(); err != nil {
			return nil, err
		}
		end, _ := g.place("")
		fmt.Fprintf(&b, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", g.name, g.signature, g.name, end)
		for _, l := range g.lines {
			b.WriteString(l.print())
		}
		b.WriteString("\tRET\n")
	}
	for i, c := range f.constants {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "DATA constants<>+%d(SB)/8, $%#016x\nDATA constants<>+%d(SB)/8, $%#016x\n", 16*i, c, 16*i+8, c)
	}
	if n := len(f.constants); n > 0 {
		fmt.Fprintf(&b, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", 16*n)
	}
	return b.Bytes(), nil
}

const generated = "// Code generated by kernels/cpu/gen. DO NOT EDIT.\n"

func (l *line) print() string {
	var numbers []int
	var values []any
	for _, r := range l.registers {
		numbers, values = append(numbers, r.number), append(values, r.number)
	}
	text := fmt.Sprintf(l.text, values...)
	switch {
	case strings.HasSuffix(text, ":"):
		return text + "\n"
	case l.word != 0:
		return fmt.Sprintf("\tWORD $0x%08x // %s\n", encoded(l.word, numbers), text)
	}
	return "\t" + text + "\n"
}

func (f *file) declarations() []byte {
	var b bytes.Buffer
	b.WriteString(generated + "\npackage cpu\n")
	for _, g := range f.functions {
		b.WriteString("\n")
		for _, l := range common.Wrapped(g.doc) {
			fmt.Fprintf(&b, "// %s\n", strings.TrimSpace(l))
		}
		fmt.Fprintf(&b, "//\n//go:noescape\nfunc %s%s\n", g.name, g.signature)
	}
	return b.Bytes()
}

func main() { common.Main(generators, run) }

func run(name string, generate func(*file), check bool) error {
	f := &file{}
	generate(f)
	text, err := f.assembly()
	if err != nil {
		return err
	}
	if err := common.Write(text, "../"+name+"_arm64.s", check); err != nil {
		return err
	}
	return common.Write(f.declarations(), "../"+name+"_arm64.go", check)
}

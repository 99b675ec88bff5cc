package ptx

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Module is parsed PTX.
type Module struct {
	name         string
	target       int // compute capability, 80 of 8.0; 0: not given
	lines        []string
	variables    map[string]*variable // of the module's scope
	globals      []*variable
	consts       []*variable
	constOffsets map[string]int
	constBytes   int
	functions    map[string]*function
	order        []string // of the entries
	entries      map[string]*Entry
	instrs       int // in all entries, calls expanded
}

// A syntaxError is what the parser and the decoders of kernels panic with where the text is wrong;
// Parse returns it.
type syntaxError struct{ error }

// Parse reads PTX and decodes its kernels. name is what errors call it. An
// instruction, modifier or operand that the interpreter does not have is an
// error here, never at run.
func Parse(name, text string) (m *Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			wrong, ok := r.(syntaxError)
			if !ok {
				panic(r)
			}
			m, err = nil, wrong.error
		}
	}()
	m = &Module{
		name: name, lines: strings.Split(text, "\n"),
		variables: map[string]*variable{}, constOffsets: map[string]int{},
		functions: map[string]*function{}, entries: map[string]*Entry{},
	}
	tokens, err := lex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	(&parser{tokens: tokens, module: m}).parseModule()
	if err := m.checkRelocs(); err != nil {
		return nil, err
	}
	for _, entry := range m.order {
		m.entries[entry] = build(m, m.functions[entry])
	}
	m.functions = nil // their text takes more memory than what was decoded of it
	return m, nil
}

// Copy returns a module of the same code with variables of its own.
func (m *Module) Copy() *Module {
	c := *m
	c.entries = map[string]*Entry{}
	for name, e := range m.entries {
		own := *e
		own.module = &c
		c.entries[name] = &own
	}
	return &c
}

// Target returns the compute capability that a device must have at least, as 80 for 8.0.
func (m *Module) Target() int { return m.target }

// Entry returns a kernel.
func (m *Module) Entry(name string) (*Entry, bool) {
	e, ok := m.entries[name]
	return e, ok
}

// Instrs is how many instructions the kernel has, with those of the functions that it calls.
func (e *Entry) Instrs() int { return len(e.code) }

// Entries returns the names of the kernels in the text's order.
func (m *Module) Entries() []string { return append([]string(nil), m.order...) }

// source returns the text of a line, trimmed.
func (m *Module) source(line int) string {
	if line < 1 || line > len(m.lines) {
		return ""
	}
	text, _, _ := strings.Cut(m.lines[line-1], "//")
	return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ";")
}

// layout gives a global or const variable its place.
func (m *Module) layout(v *variable) {
	if v.space == spaceGlobal {
		m.globals = append(m.globals, v)
		return
	}
	m.constBytes = alignUp(m.constBytes, v.align)
	m.consts = append(m.consts, v)
	m.constOffsets[v.name] = m.constBytes
	m.constBytes += v.bytes
}

// maxConstBytes is what a GPU has of constant memory.
const maxConstBytes = 64 << 10

func (m *Module) checkRelocs() error {
	if m.constBytes > maxConstBytes {
		return fmt.Errorf("%s: %d bytes of constants, of %d", m.name, m.constBytes, maxConstBytes)
	}
	for _, v := range m.variables {
		for _, r := range v.relocs {
			if t := m.variables[r.symbol]; t == nil || t.space == spaceShared {
				return fmt.Errorf("%s: line %d: variable %s holds the address of %s, which is not a global or const variable", m.name, v.line, v.name, r.symbol)
			}
		}
	}
	return nil
}

// relocate writes the addresses that an initialiser names.
func (m *Module) relocate(s *moduleState, v *variable, data []byte) {
	for _, r := range v.relocs {
		addr := r.addend
		if g := s.globals[r.symbol]; g != nil {
			addr += g.base
		} else {
			addr += uint64(m.constOffsets[r.symbol])
			if r.generic {
				addr += constWindow
			}
		}
		binary.LittleEndian.PutUint64(data[r.offset:], addr)
	}
}

// Param is one parameter of a kernel in its parameter block.
type Param struct {
	Name                string
	Offset, Size, Align int
}

// Entry is a kernel, decoded once and run often, in several memories at a
// time if need be.
type Entry struct {
	module  *Module
	name    string
	code    []instr
	params  []Param
	maxntid [3]int
	reqntid [3]int

	paramBytes  int
	shared      int        // static bytes
	sharedAlign int        // of dynamic shared memory, which follows
	local       int        // bytes for each thread
	memOps      int        // instructions that access memory
	polls       bool       // it has strong loads of scope .sys
	preds       int        // predicate registers; 0 is always true
	rows        int        // registers and constants; 0 swallows what is written to _
	fixed       []fixedRow // in the order of their rows
}

// Name returns the kernel's name.
func (e *Entry) Name() string { return e.name }

// ParamBytes returns the size of the parameter block.
func (e *Entry) ParamBytes() int { return e.paramBytes }

// Params returns the parameters in order.
func (e *Entry) Params() []Param { return append([]Param(nil), e.params...) }

// SharedBytes returns the size of static shared memory.
func (e *Entry) SharedBytes() int { return e.shared }

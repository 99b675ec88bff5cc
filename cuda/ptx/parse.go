package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// A variable is a declaration in some state space, a formal parameter
// included.
type variable struct {
	name   string
	space  space
	typ    typ
	bytes  int
	align  int
	extern bool // declared without a size: dynamic shared memory
	init   []byte
	relocs []reloc
	line   int
}

// A reloc is an address in an initialiser.
type reloc struct {
	offset  int
	symbol  string
	addend  uint64
	generic bool
}

type function struct {
	name    string
	entry   bool
	defined bool
	params  []*variable
	results []*variable
	body    []statement
	line    int
	maxntid [3]int // zero where not given
	reqntid [3]int
}

type statementKind uint8

const (
	statementInstr statementKind = iota
	statementLabel
	statementOpen  // {
	statementClose // }
	statementReg
	statementVar
	statementTargets // label: .branchtargets a, b;
)

// A statement is one line of a function's body.
type statement struct {
	kind     statementKind
	line     int
	name     string // opcode or label
	guard    string // predicate register, or nothing
	guardNot bool
	args     []operand
	typ      typ // of registers
	regs     []regDecl
	variable *variable
	targets  []string
}

// A regDecl declares name, or name0 … name<count-1>.
type regDecl struct {
	name  string
	count int // 0 for a single register
}

type operandKind uint8

const (
	operandName operandKind = iota // a register, symbol, label or special register
	operandInt
	operandFloat32
	operandFloat64
	operandAddress // [base+offset]
	operandVector  // {a, b}
	operandList    // (a, b) of a call
	operandPair    // p|q
)

type operand struct {
	kind  operandKind
	name  string
	bits  uint64    // of a number, or what is added to an address
	not   bool      // !p
	items []operand // of a vector, list or pair; the base of an address
}

type parser struct {
	tokens []token
	pos    int
	module *Module
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEnd {
		p.pos++
	}
	return t
}

func (p *parser) is(kind tokenKind) bool { return p.peek().kind == kind }

func (p *parser) isName(name string) bool {
	t := p.peek()
	return t.kind == tokenName && t.text == name
}

func (p *parser) accept(kind tokenKind) bool {
	if p.is(kind) {
		p.next()
		return true
	}
	return false
}

func (p *parser) acceptName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) errorf(line int, format string, args ...any) syntaxError {
	return syntaxError{fmt.Errorf("%s: line %d: %s", p.module.name, line, fmt.Sprintf(format, args...))}
}

func (p *parser) expect(kind tokenKind) token {
	t := p.next()
	if t.kind != kind {
		panic(p.errorf(t.line, "expected %s, found %s", token{kind: kind, text: "a name"}, t))
	}
	return t
}

// skipLine drops what is left of a line: directives without a semicolon.
func (p *parser) skipLine(line int) {
	for !p.is(tokenEnd) && p.peek().line == line {
		p.next()
	}
}

// parseModule reads the module scope.
func (p *parser) parseModule() {
	for !p.is(tokenEnd) {
		t := p.next()
		if t.kind == ';' {
			continue
		}
		if t.kind != tokenName {
			panic(p.errorf(t.line, "expected a directive, found %s", t))
		}
		p.directive(t)
	}
}

// target reads the compute capability that the module needs, as in sm_80.
func (p *parser) target(line int) {
	number, ok := strings.CutPrefix(p.peek().text, "sm_")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		panic(p.errorf(line, "target %s is not understood", p.peek()))
	}
	p.module.target = n
	p.skipLine(line)
}

func (p *parser) directive(t token) {
	switch t.text {
	case ".target":
		p.target(t.line)
		return
	case ".version", ".address_size", ".file", ".loc":
		p.skipLine(t.line)
		return
	case ".pragma":
		p.skipTo(';')
		return
	case ".section":
		p.section()
		return
	}
	extern := false
	for ; strings.HasPrefix(t.text, "."); t = p.next() {
		switch t.text {
		case ".visible", ".weak", ".common":
		case ".extern":
			extern = true
		case ".entry", ".func":
			p.function(t.text == ".entry", t.line)
			return
		case ".global", ".const", ".shared":
			p.moduleVariable(spaceByName[t.text[1:]], extern)
			return
		default:
			panic(p.errorf(t.line, "directive %s is not understood", t.text))
		}
		if t.kind != tokenName {
			break
		}
	}
	panic(p.errorf(t.line, "expected a directive, found %s", t))
}

func (p *parser) skipTo(kind tokenKind) {
	for {
		t := p.next()
		if t.kind == kind {
			return
		}
		if t.kind == tokenEnd {
			panic(p.errorf(t.line, "expected %s, found the end", token{kind: kind}))
		}
	}
}

// section skips a debugging section: .section .debug_info { … }.
func (p *parser) section() {
	p.expect(tokenName)
	p.expect('{')
	p.skipTo('}')
}

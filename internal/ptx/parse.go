package ptx

import (
	"fmt"
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

func (p *parser) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s: line %d: %s", p.module.name, line, fmt.Sprintf(format, args...))
}

func (p *parser) expect(kind tokenKind) (token, error) {
	t := p.next()
	if t.kind != kind {
		return t, p.errorf(t.line, "expected %s, found %s", token{kind: kind, text: "a name"}, t)
	}
	return t, nil
}

// skipLine drops what is left of a line: directives without a semicolon.
func (p *parser) skipLine(line int) {
	for !p.is(tokenEnd) && p.peek().line == line {
		p.next()
	}
}

// parseModule reads the module scope.
func (p *parser) parseModule() error {
	for !p.is(tokenEnd) {
		t := p.next()
		if t.kind == ';' {
			continue
		}
		if t.kind != tokenName {
			return p.errorf(t.line, "expected a directive, found %s", t)
		}
		if err := p.directive(t); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) directive(t token) error {
	switch t.text {
	case ".version", ".target", ".address_size", ".file", ".loc":
		p.skipLine(t.line)
		return nil
	case ".pragma":
		return p.skipTo(';')
	case ".section":
		return p.section()
	}
	extern := false
	for ; strings.HasPrefix(t.text, "."); t = p.next() {
		switch t.text {
		case ".visible", ".weak", ".common":
		case ".extern":
			extern = true
		case ".entry", ".func":
			return p.function(t.text == ".entry", t.line)
		case ".global", ".const", ".shared":
			return p.moduleVariable(spaceByName[t.text[1:]], extern)
		default:
			return p.errorf(t.line, "directive %s is not understood", t.text)
		}
		if t.kind != tokenName {
			break
		}
	}
	return p.errorf(t.line, "expected a directive, found %s", t)
}

func (p *parser) skipTo(kind tokenKind) error {
	for {
		t := p.next()
		if t.kind == kind {
			return nil
		}
		if t.kind == tokenEnd {
			return p.errorf(t.line, "expected %s, found the end", token{kind: kind})
		}
	}
}

// section skips a debugging section: .section .debug_info { … }.
func (p *parser) section() error {
	if _, err := p.expect(tokenName); err != nil {
		return err
	}
	if _, err := p.expect('{'); err != nil {
		return err
	}
	return p.skipTo('}')
}

func (p *parser) moduleVariable(s space, extern bool) error {
	vs, err := p.variables(s)
	if err != nil {
		return err
	}
	for _, v := range vs {
		if v.extern && s != spaceShared || extern && s != spaceShared {
			return p.errorf(v.line, "variable %s lives in another module", v.name)
		}
		if _, ok := p.module.variables[v.name]; ok {
			return p.errorf(v.line, "variable %s is declared twice", v.name)
		}
		p.module.variables[v.name] = v
		if s != spaceShared {
			p.module.layout(v)
		}
	}
	return nil
}

// maxVariableBytes keeps a size that cannot be meant from being allocated.
const maxVariableBytes = 1 << 30

// variables reads ".align 4 .b8 name[16] = {…}, …;" after its space.
func (p *parser) variables(s space) ([]*variable, error) {
	align, t, err := p.variableType()
	if err != nil {
		return nil, err
	}
	var vs []*variable
	for {
		v, err := p.declarator(s, t, align)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
		if p.accept('=') {
			if s != spaceGlobal && s != spaceConst {
				return nil, p.errorf(v.line, "a %s variable cannot be initialised", s)
			}
			if err := p.initialiser(v); err != nil {
				return nil, err
			}
		}
		if p.accept(';') {
			return vs, nil
		}
		if _, err := p.expect(','); err != nil {
			return nil, err
		}
	}
}

// variableType reads ".align n .type", and .ptr attributes of parameters.
func (p *parser) variableType() (align int, t typ, err error) {
	for {
		tok, err := p.expect(tokenName)
		if err != nil {
			return 0, 0, err
		}
		switch tok.text {
		case ".align":
			n, err := p.expect(tokenInt)
			if err != nil {
				return 0, 0, err
			}
			if n.bits == 0 || n.bits > 1024 || n.bits&(n.bits-1) != 0 {
				return 0, 0, p.errorf(n.line, "an alignment of %d", n.bits)
			}
			align = int(n.bits)
			continue
		}
		t, ok := typesByName[strings.TrimPrefix(tok.text, ".")]
		if !ok || !strings.HasPrefix(tok.text, ".") || t.bytes() == 0 {
			return 0, 0, p.errorf(tok.line, "%s is not understood in a variable's declaration", tok)
		}
		return max(align, t.bytes()), t, nil
	}
}

// declarator reads "name" or "name[n][m]".
func (p *parser) declarator(s space, t typ, align int) (*variable, error) {
	name, err := p.expect(tokenName)
	if err != nil {
		return nil, err
	}
	v := &variable{name: name.text, space: s, typ: t, align: align, bytes: t.bytes(), line: name.line}
	for p.accept('[') {
		if p.accept(']') {
			v.extern = true
			continue
		}
		n, err := p.expect(tokenInt)
		if err != nil {
			return nil, err
		}
		if n.bits > maxVariableBytes || v.bytes*int(n.bits) > maxVariableBytes {
			return nil, p.errorf(n.line, "variable %s is too large", v.name)
		}
		v.bytes *= int(n.bits)
		if _, err := p.expect(']'); err != nil {
			return nil, err
		}
	}
	if v.extern {
		v.bytes = 0
	}
	return v, nil
}

// initialiser reads a number, an address, or a flat list of them.
func (p *parser) initialiser(v *variable) error {
	if v.extern {
		return p.errorf(v.line, "variable %s has values but no size", v.name)
	}
	if !p.accept('{') {
		return p.initialValue(v)
	}
	if p.accept('}') {
		return nil
	}
	for {
		if err := p.initialValue(v); err != nil {
			return err
		}
		if p.accept('}') {
			return nil
		}
		if _, err := p.expect(','); err != nil {
			return err
		}
	}
}

func (p *parser) initialValue(v *variable) error {
	size := v.typ.bytes()
	if len(v.init)+size > v.bytes {
		return p.errorf(p.peek().line, "variable %s has more values than its %d bytes", v.name, v.bytes)
	}
	line := p.peek().line
	o, err := p.initialOperand()
	if err != nil {
		return err
	}
	var bits uint64
	switch {
	case o.kind == operandName:
		if size != 8 {
			return p.errorf(line, "an address in a variable of type %s", v.typ)
		}
		v.relocs = append(v.relocs, reloc{offset: len(v.init), symbol: o.name, addend: o.bits, generic: o.not})
	default:
		if bits, err = immediate(o, v.typ); err != nil {
			return p.errorf(line, "%v", err)
		}
	}
	for range size {
		v.init = append(v.init, byte(bits))
		bits >>= 8
	}
	return nil
}

// initialOperand reads a number or symbol, symbol+4, generic(symbol)+4; not
// says generic.
func (p *parser) initialOperand() (operand, error) {
	generic := false
	if p.isName("generic") {
		p.next()
		generic = true
		if _, err := p.expect('('); err != nil {
			return operand{}, err
		}
	}
	o, err := p.scalar()
	if err != nil {
		return o, err
	}
	if generic {
		if _, err := p.expect(')'); err != nil {
			return o, err
		}
	}
	o.not = generic
	if o.kind == operandName && (p.is('+') || p.is('-')) {
		o.bits, err = p.offset()
	}
	return o, err
}

// function reads what follows .entry or .func.
func (p *parser) function(entry bool, line int) error {
	f := &function{entry: entry, line: line}
	var err error
	if p.is('(') {
		if f.results, err = p.formals(); err != nil {
			return err
		}
	}
	name, err := p.expect(tokenName)
	if err != nil {
		return err
	}
	f.name = name.text
	if p.is('(') {
		if f.params, err = p.formals(); err != nil {
			return err
		}
	}
	if err := p.attributes(f); err != nil {
		return err
	}
	if old := p.module.functions[f.name]; old != nil && old.defined && p.is('{') {
		return p.errorf(line, "function %s is defined twice", f.name)
	}
	if p.accept(';') {
		if p.module.functions[f.name] == nil {
			p.module.functions[f.name] = f
		}
		return nil
	}
	if _, err := p.expect('{'); err != nil {
		return err
	}
	if err := p.body(f); err != nil {
		return err
	}
	f.defined = true
	p.module.functions[f.name] = f
	if entry {
		p.module.order = append(p.module.order, f.name)
	}
	return nil
}

// formals reads "(.param .u64 a, .param .align 8 .b8 b[16])".
func (p *parser) formals() ([]*variable, error) {
	p.next()
	var vs []*variable
	for !p.accept(')') {
		if len(vs) > 0 {
			if _, err := p.expect(','); err != nil {
				return nil, err
			}
		}
		t := p.next()
		if t.kind != tokenName || t.text != ".param" {
			return nil, p.errorf(t.line, "expected .param, found %s", t)
		}
		align, ty, err := p.variableType()
		if err != nil {
			return nil, err
		}
		if p.isName(".ptr") {
			p.pointerAttributes()
		}
		v, err := p.declarator(spaceParam, ty, align)
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// pointerAttributes skips ".ptr .global .align 16": promises to ptxas.
func (p *parser) pointerAttributes() {
	for p.is(tokenName) && strings.HasPrefix(p.peek().text, ".") {
		if p.next().text == ".align" {
			p.accept(tokenInt)
		}
	}
}

// attributes reads the performance directives between head and body.
func (p *parser) attributes(f *function) error {
	for p.is(tokenName) {
		t := p.next()
		switch t.text {
		case ".maxntid", ".reqntid":
			n, err := p.extents()
			if err != nil {
				return err
			}
			if t.text == ".maxntid" {
				f.maxntid = n
			} else {
				f.reqntid = n
			}
		case ".minnctapersm", ".maxnreg", ".maxnctapersm":
			if _, err := p.expect(tokenInt); err != nil {
				return err
			}
		case ".noreturn":
		case ".pragma":
			if err := p.skipTo(';'); err != nil {
				return err
			}
		default:
			return p.errorf(t.line, "%s is not understood at function %s", t, f.name)
		}
	}
	return nil
}

func (p *parser) extents() (n [3]int, err error) {
	n = [3]int{1, 1, 1}
	for i := range n {
		t, err := p.expect(tokenInt)
		if err != nil {
			return n, err
		}
		if t.bits == 0 || t.bits > 1<<20 {
			return n, p.errorf(t.line, "%d threads", t.bits)
		}
		n[i] = int(t.bits)
		if !p.accept(',') {
			break
		}
	}
	return n, nil
}

// body reads statements up to the brace that closes the function.
func (p *parser) body(f *function) error {
	for depth := 1; ; {
		t := p.peek()
		switch t.kind {
		case tokenEnd:
			return p.errorf(t.line, "function %s does not end", f.name)
		case ';':
			p.next()
		case '{':
			p.next()
			depth++
			f.body = append(f.body, statement{kind: statementOpen, line: t.line})
		case '}':
			p.next()
			depth--
			if depth == 0 {
				return nil
			}
			f.body = append(f.body, statement{kind: statementClose, line: t.line})
		case '@', tokenName:
			if err := p.statement(f); err != nil {
				return err
			}
		default:
			return p.errorf(t.line, "expected an instruction, found %s", t)
		}
	}
}

func (p *parser) statement(f *function) error {
	t := p.peek()
	switch {
	case t.kind == '@':
		return p.instruction(f)
	case p.tokens[p.pos+1].kind == ':':
		p.next()
		p.next()
		if p.acceptName(".branchtargets") {
			return p.branchTargets(f, t)
		}
		f.body = append(f.body, statement{kind: statementLabel, line: t.line, name: t.text})
		return nil
	case !strings.HasPrefix(t.text, "."):
		return p.instruction(f)
	}
	p.next()
	switch t.text {
	case ".loc", ".file":
		p.skipLine(t.line)
		return nil
	case ".pragma":
		return p.skipTo(';')
	case ".reg":
		return p.registers(f, t.line)
	case ".local", ".shared", ".param", ".const", ".global":
		vs, err := p.variables(spaceByName[t.text[1:]])
		for _, v := range vs {
			f.body = append(f.body, statement{kind: statementVar, line: t.line, variable: v})
		}
		return err
	}
	return p.errorf(t.line, "directive %s is not understood", t.text)
}

func (p *parser) branchTargets(f *function, label token) error {
	s := statement{kind: statementTargets, line: label.line, name: label.text}
	for {
		t, err := p.expect(tokenName)
		if err != nil {
			return err
		}
		s.targets = append(s.targets, t.text)
		if p.accept(';') {
			f.body = append(f.body, s)
			return nil
		}
		if _, err := p.expect(','); err != nil {
			return err
		}
	}
}

// registers reads ".b32 %r<19>, a;".
func (p *parser) registers(f *function, line int) error {
	t := p.next()
	ty, ok := typesByName[strings.TrimPrefix(t.text, ".")]
	if t.kind != tokenName || !ok || ty == tTF32 {
		return p.errorf(t.line, "registers of type %s", t)
	}
	s := statement{kind: statementReg, line: line, typ: ty}
	for {
		name, err := p.expect(tokenName)
		if err != nil {
			return err
		}
		decl := regDecl{name: name.text}
		if p.accept('<') {
			n, err := p.expect(tokenInt)
			if err != nil {
				return err
			}
			if _, err := p.expect('>'); err != nil {
				return err
			}
			if n.bits == 0 || n.bits > 1<<24 {
				return p.errorf(n.line, "%d registers", n.bits)
			}
			decl.count = int(n.bits)
		}
		s.regs = append(s.regs, decl)
		if p.accept(';') {
			f.body = append(f.body, s)
			return nil
		}
		if _, err := p.expect(','); err != nil {
			return err
		}
	}
}

func (p *parser) instruction(f *function) error {
	s := statement{kind: statementInstr, line: p.peek().line}
	if p.accept('@') {
		s.guardNot = p.accept('!')
		g, err := p.expect(tokenName)
		if err != nil {
			return err
		}
		s.guard = g.text
	}
	op, err := p.expect(tokenName)
	if err != nil {
		return err
	}
	s.name = op.text
	s.line = op.line
	if !p.is(';') {
		for {
			o, err := p.operand()
			if err != nil {
				return err
			}
			s.args = append(s.args, o)
			if !p.accept(',') {
				break
			}
		}
	}
	if _, err := p.expect(';'); err != nil {
		return err
	}
	f.body = append(f.body, s)
	return nil
}

func (p *parser) operand() (operand, error) {
	switch {
	case p.accept('['):
		return p.address()
	case p.accept('{'):
		return p.items(operandVector, '}')
	case p.accept('('):
		return p.items(operandList, ')')
	}
	o, err := p.scalar()
	if err != nil {
		return o, err
	}
	if o.kind == operandName && (p.is('+') || p.is('-')) {
		o.bits, err = p.offset()
		return o, err
	}
	if !p.accept('|') {
		return o, nil
	}
	second, err := p.scalar()
	return operand{kind: operandPair, items: []operand{o, second}}, err
}

func (p *parser) items(kind operandKind, end tokenKind) (operand, error) {
	o := operand{kind: kind}
	for !p.accept(end) {
		if len(o.items) > 0 {
			if _, err := p.expect(','); err != nil {
				return o, err
			}
		}
		item, err := p.scalar()
		if err != nil {
			return o, err
		}
		o.items = append(o.items, item)
	}
	return o, nil
}

// address reads "base+offset]", "base]" or "offset]".
func (p *parser) address() (operand, error) {
	base, err := p.scalar()
	if err != nil {
		return base, err
	}
	o := operand{kind: operandAddress, items: []operand{base}}
	if p.is('+') || p.is('-') {
		if o.bits, err = p.offset(); err != nil {
			return o, err
		}
	}
	_, err = p.expect(']')
	return o, err
}

// offset reads "+16", "-16" or "+-16".
func (p *parser) offset() (uint64, error) {
	negative := p.next().kind == '-'
	if p.accept('-') {
		negative = !negative
	}
	n, err := p.expect(tokenInt)
	if negative {
		return -n.bits, err
	}
	return n.bits, err
}

// scalar reads a name or a number, with its sign or its !.
func (p *parser) scalar() (operand, error) {
	not := p.accept('!')
	negative := p.accept('-')
	t := p.next()
	o := operand{bits: t.bits, not: not}
	switch t.kind {
	case tokenName:
		o.kind, o.name, o.bits = operandName, t.text, 0
		if negative {
			return o, p.errorf(t.line, "-%s", t.text)
		}
		return o, nil
	case tokenInt:
		o.kind = operandInt
		if negative {
			o.bits = -o.bits
		}
	case tokenFloat32:
		o.kind = operandFloat32
		if negative {
			o.bits ^= 1 << 31
		}
	case tokenFloat64:
		o.kind = operandFloat64
		if negative {
			o.bits ^= 1 << 63
		}
	default:
		return o, p.errorf(t.line, "expected an operand, found %s", t)
	}
	if not {
		return o, p.errorf(t.line, "! before a number")
	}
	return o, nil
}

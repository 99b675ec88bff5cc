package ptx

import (
	"strings"
)

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

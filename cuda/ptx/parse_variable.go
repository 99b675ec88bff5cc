package ptx

import (
	"strings"
)

func (p *parser) moduleVariable(s space, extern bool) {
	vs := p.variables(s)
	for _, v := range vs {
		if v.extern && s != spaceShared || extern && s != spaceShared {
			panic(p.errorf(v.line, "variable %s lives in another module", v.name))
		}
		if _, ok := p.module.variables[v.name]; ok {
			panic(p.errorf(v.line, "variable %s is declared twice", v.name))
		}
		p.module.variables[v.name] = v
		if s != spaceShared {
			p.module.layout(v)
		}
	}
}

// maxVariableBytes keeps a size that cannot be meant from being allocated.
const maxVariableBytes = 1 << 30

// variables reads ".align 4 .b8 name[16] = {…}, …;" after its space.
func (p *parser) variables(s space) []*variable {
	align, t := p.variableType()
	var vs []*variable
	for {
		v := p.declarator(s, t, align)
		vs = append(vs, v)
		if p.accept('=') {
			if s != spaceGlobal && s != spaceConst {
				panic(p.errorf(v.line, "a %s variable cannot be initialised", s))
			}
			p.initialiser(v)
		}
		if p.accept(';') {
			return vs
		}
		p.expect(',')
	}
}

// variableType reads ".align n .type", and .ptr attributes of parameters.
func (p *parser) variableType() (align int, t typ) {
	for {
		tok := p.expect(tokenName)
		switch tok.text {
		case ".align":
			n := p.expect(tokenInt)
			if n.bits == 0 || n.bits > 1024 || n.bits&(n.bits-1) != 0 {
				panic(p.errorf(n.line, "an alignment of %d", n.bits))
			}
			align = int(n.bits)
			continue
		}
		t, ok := typesByName[strings.TrimPrefix(tok.text, ".")]
		if !ok || !strings.HasPrefix(tok.text, ".") || t.bytes() == 0 {
			panic(p.errorf(tok.line, "%s is not understood in a variable's declaration", tok))
		}
		return max(align, t.bytes()), t
	}
}

// declarator reads "name" or "name[n][m]".
func (p *parser) declarator(s space, t typ, align int) *variable {
	name := p.expect(tokenName)
	v := &variable{name: name.text, space: s, typ: t, align: align, bytes: t.bytes(), line: name.line}
	for p.accept('[') {
		if p.accept(']') {
			v.extern = true
			continue
		}
		n := p.expect(tokenInt)
		if n.bits > maxVariableBytes || v.bytes*int(n.bits) > maxVariableBytes {
			panic(p.errorf(n.line, "variable %s is too large", v.name))
		}
		v.bytes *= int(n.bits)
		p.expect(']')
	}
	if v.extern {
		v.bytes = 0
	}
	return v
}

// initialiser reads a number, an address, or a flat list of them.
func (p *parser) initialiser(v *variable) {
	if v.extern {
		panic(p.errorf(v.line, "variable %s has values but no size", v.name))
	}
	if !p.accept('{') {
		p.initialValue(v)
		return
	}
	if p.accept('}') {
		return
	}
	for {
		p.initialValue(v)
		if p.accept('}') {
			return
		}
		p.expect(',')
	}
}

func (p *parser) initialValue(v *variable) {
	size := v.typ.bytes()
	if len(v.init)+size > v.bytes {
		panic(p.errorf(p.peek().line, "variable %s has more values than its %d bytes", v.name, v.bytes))
	}
	line := p.peek().line
	o := p.initialOperand()
	bits, err := immediate(o, v.typ)
	switch {
	case o.kind == operandName:
		if size != 8 {
			panic(p.errorf(line, "an address in a variable of type %s", v.typ))
		}
		v.relocs = append(v.relocs, reloc{offset: len(v.init), symbol: o.name, addend: o.bits, generic: o.not})
	case err != nil:
		panic(p.errorf(line, "%v", err))
	}
	for range size {
		v.init = append(v.init, byte(bits))
		bits >>= 8
	}
}

// initialOperand reads a number or symbol, symbol+4, generic(symbol)+4; not
// says generic.
func (p *parser) initialOperand() operand {
	generic := false
	if p.isName("generic") {
		p.next()
		generic = true
		p.expect('(')
	}
	o := p.scalar()
	if generic {
		p.expect(')')
	}
	o.not = generic
	if o.kind == operandName && (p.is('+') || p.is('-')) {
		o.bits = p.offset()
	}
	return o
}

package ptx

func (p *parser) instruction(f *function) {
	s := statement{kind: statementInstr, line: p.peek().line}
	if p.accept('@') {
		s.guardNot = p.accept('!')
		g := p.expect(tokenName)
		s.guard = g.text
	}
	op := p.expect(tokenName)
	s.name = op.text
	s.line = op.line
	if !p.is(';') {
		for {
			o := p.operand()
			s.args = append(s.args, o)
			if !p.accept(',') {
				break
			}
		}
	}
	p.expect(';')
	f.body = append(f.body, s)
}

func (p *parser) operand() operand {
	switch {
	case p.accept('['):
		return p.address()
	case p.accept('{'):
		return p.items(operandVector, '}')
	case p.accept('('):
		return p.items(operandList, ')')
	}
	o := p.scalar()
	if o.kind == operandName && (p.is('+') || p.is('-')) {
		o.bits = p.offset()
		return o
	}
	if !p.accept('|') {
		return o
	}
	second := p.scalar()
	return operand{kind: operandPair, items: []operand{o, second}}
}

func (p *parser) items(kind operandKind, end tokenKind) operand {
	o := operand{kind: kind}
	for !p.accept(end) {
		if len(o.items) > 0 {
			p.expect(',')
		}
		item := p.scalar()
		o.items = append(o.items, item)
	}
	return o
}

// address reads "base+offset]", "base]" or "offset]".
func (p *parser) address() operand {
	base := p.scalar()
	o := operand{kind: operandAddress, items: []operand{base}}
	if p.is('+') || p.is('-') {
		o.bits = p.offset()
	}
	p.expect(']')
	return o
}

// offset reads "+16", "-16" or "+-16".
func (p *parser) offset() uint64 {
	negative := p.next().kind == '-'
	if p.accept('-') {
		negative = !negative
	}
	n := p.expect(tokenInt)
	if negative {
		return -n.bits
	}
	return n.bits
}

// scalar reads a name or a number, with its sign or its !.
func (p *parser) scalar() operand {
	not := p.accept('!')
	negative := p.accept('-')
	t := p.next()
	o := operand{bits: t.bits, not: not}
	switch t.kind {
	case tokenName:
		o.kind, o.name, o.bits = operandName, t.text, 0
		if negative {
			panic(p.errorf(t.line, "-%s", t.text))
		}
		return o
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
		panic(p.errorf(t.line, "expected an operand, found %s", t))
	}
	if not {
		panic(p.errorf(t.line, "! before a number"))
	}
	return o
}

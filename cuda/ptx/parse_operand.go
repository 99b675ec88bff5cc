package ptx

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

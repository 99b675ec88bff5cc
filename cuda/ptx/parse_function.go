package ptx

import (
	"strings"
)

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

package ptx

import (
	"strings"
)

// function reads what follows .entry or .func.
func (p *parser) function(entry bool, line int) {
	f := &function{entry: entry, line: line}
	if p.is('(') {
		f.results = p.formals()
	}
	name := p.expect(tokenName)
	f.name = name.text
	if p.is('(') {
		f.params = p.formals()
	}
	p.attributes(f)
	if old := p.module.functions[f.name]; old != nil && old.defined && p.is('{') {
		panic(p.errorf(line, "function %s is defined twice", f.name))
	}
	if p.accept(';') {
		if p.module.functions[f.name] == nil {
			p.module.functions[f.name] = f
		}
		return
	}
	p.expect('{')
	p.body(f)
	f.defined = true
	p.module.functions[f.name] = f
	if entry {
		p.module.order = append(p.module.order, f.name)
	}
}

// formals reads "(.param .u64 a, .param .align 8 .b8 b[16])".
func (p *parser) formals() []*variable {
	p.next()
	var vs []*variable
	for !p.accept(')') {
		if len(vs) > 0 {
			p.expect(',')
		}
		t := p.next()
		if t.kind != tokenName || t.text != ".param" {
			panic(p.errorf(t.line, "expected .param, found %s", t))
		}
		align, ty := p.variableType()
		if p.isName(".ptr") {
			p.pointerAttributes()
		}
		v := p.declarator(spaceParam, ty, align)
		vs = append(vs, v)
	}
	return vs
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
func (p *parser) attributes(f *function) {
	for p.is(tokenName) {
		t := p.next()
		switch t.text {
		case ".maxntid", ".reqntid":
			n := p.extents()
			if t.text == ".maxntid" {
				f.maxntid = n
			} else {
				f.reqntid = n
			}
		case ".minnctapersm", ".maxnreg", ".maxnctapersm":
			p.expect(tokenInt)
		case ".noreturn":
		case ".pragma":
			p.skipTo(';')
		default:
			panic(p.errorf(t.line, "%s is not understood at function %s", t, f.name))
		}
	}
}

func (p *parser) extents() (n [3]int) {
	n = [3]int{1, 1, 1}
	for i := range n {
		t := p.expect(tokenInt)
		if t.bits == 0 || t.bits > 1<<20 {
			panic(p.errorf(t.line, "%d threads", t.bits))
		}
		n[i] = int(t.bits)
		if !p.accept(',') {
			break
		}
	}
	return n
}

// body reads statements up to the brace that closes the function.
func (p *parser) body(f *function) {
	for depth := 1; ; {
		t := p.peek()
		switch t.kind {
		case tokenEnd:
			panic(p.errorf(t.line, "function %s does not end", f.name))
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
				return
			}
			f.body = append(f.body, statement{kind: statementClose, line: t.line})
		case '@', tokenName:
			p.statement(f)
		default:
			panic(p.errorf(t.line, "expected an instruction, found %s", t))
		}
	}
}

func (p *parser) statement(f *function) {
	t := p.peek()
	switch {
	case t.kind == '@':
		p.instruction(f)
		return
	case p.tokens[p.pos+1].kind == ':':
		p.next()
		p.next()
		if p.acceptName(".branchtargets") {
			p.branchTargets(f, t)
			return
		}
		f.body = append(f.body, statement{kind: statementLabel, line: t.line, name: t.text})
		return
	case !strings.HasPrefix(t.text, "."):
		p.instruction(f)
		return
	}
	p.next()
	switch t.text {
	case ".loc", ".file":
		p.skipLine(t.line)
		return
	case ".pragma":
		p.skipTo(';')
		return
	case ".reg":
		p.registers(f, t.line)
		return
	case ".local", ".shared", ".param", ".const", ".global":
		vs := p.variables(spaceByName[t.text[1:]])
		for _, v := range vs {
			f.body = append(f.body, statement{kind: statementVar, line: t.line, variable: v})
		}
		return
	}
	panic(p.errorf(t.line, "directive %s is not understood", t.text))
}

func (p *parser) branchTargets(f *function, label token) {
	s := statement{kind: statementTargets, line: label.line, name: label.text}
	for {
		t := p.expect(tokenName)
		s.targets = append(s.targets, t.text)
		if p.accept(';') {
			f.body = append(f.body, s)
			return
		}
		p.expect(',')
	}
}

// registers reads ".b32 %r<19>, a;".
func (p *parser) registers(f *function, line int) {
	t := p.next()
	ty, ok := typesByName[strings.TrimPrefix(t.text, ".")]
	if t.kind != tokenName || !ok || ty == tTF32 {
		panic(p.errorf(t.line, "registers of type %s", t))
	}
	s := statement{kind: statementReg, line: line, typ: ty}
	for {
		name := p.expect(tokenName)
		decl := regDecl{name: name.text}
		if p.accept('<') {
			n := p.expect(tokenInt)
			p.expect('>')
			if n.bits == 0 || n.bits > 1<<24 {
				panic(p.errorf(n.line, "%d registers", n.bits))
			}
			decl.count = int(n.bits)
		}
		s.regs = append(s.regs, decl)
		if p.accept(';') {
			f.body = append(f.body, s)
			return
		}
		p.expect(',')
	}
}

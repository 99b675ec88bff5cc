package tokenizer

import "fmt"

// A node is a part of a parsed pattern. It is compiled from back to front:
// compile is given the instruction that follows, and returns its first.
type node interface {
	compile(c *compiler, next int) int
	canBeEmpty() bool
}

type (
	charNode struct{ class *charClass }
	// lookNode requires that a character of the class comes, or that none does.
	lookNode struct {
		class *charClass
		none  bool
	}
	catNode    []node
	altNode    []node
	repeatNode struct {
		node
		min, max int // max is unlimited for no bound
	}
)

const (
	unlimited = -1

	// A pattern is bounded, since a choice costs a bit for each byte of text.
	maxRepeat  = 1000
	maxProgram = 4000
	maxChoices = 256
)

type compiler struct {
	program []inst
	choices int
	firsts  map[int]byteSet // of instructions: see first
}

// compileRegex returns a regex for a pattern.
// It reports what it does not support, rather than match something else.
func compileRegex(pattern string) (*regex, error) {
	tree, err := parseRegex(pattern)
	if err != nil {
		return nil, err
	}
	if tree.canBeEmpty() {
		return nil, fmt.Errorf("pattern %q can match the empty text, which is not supported", pattern)
	}
	c := compiler{firsts: map[int]byteSet{}}
	start := tree.compile(&c, c.emit(inst{op: opMatch}))
	if c.full() || c.choices > maxChoices {
		return nil, fmt.Errorf("pattern %.100q is too large: %d choices and %d steps (supported: %d and %d)",
			pattern, c.choices, len(c.program), maxChoices, maxProgram)
	}
	for i := range c.program {
		if in := &c.program[i]; in.op == opChoice {
			in.first = c.first(in.next)
		}
	}
	return &regex{program: c.program, start: start, choices: c.choices}, nil
}

// first is the bytes with which what an instruction matches may begin.
// Choices form no circle that takes no character, for no repeated part can be empty.
func (c *compiler) first(pc int) byteSet {
	set, known := c.firsts[pc]
	if known {
		return set
	}
	switch in := &c.program[pc]; in.op {
	case opChar, opAhead:
		set = in.class.firstBytes()
	case opNoneOf:
		set = c.first(in.next)
	case opChoice:
		set = c.first(in.next)
		set.add(c.first(in.other))
	case opMatch: // whatever follows
		set = byteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	}
	c.firsts[pc] = set
	return set
}

// emit adds an instruction and returns its address.
func (c *compiler) emit(in inst) int {
	if in.op == opChoice {
		in.choice = c.choices
		c.choices++
	}
	c.program = append(c.program, in)
	return len(c.program) - 1
}

// full tells a repeat to stop: compileRegex fails.
func (c *compiler) full() bool { return len(c.program) > maxProgram }

func (n charNode) compile(c *compiler, next int) int {
	return c.emit(inst{op: opChar, class: n.class, next: next})
}

func (n lookNode) compile(c *compiler, next int) int {
	op := opAhead
	if n.none {
		op = opNoneOf
	}
	return c.emit(inst{op: op, class: n.class, next: next})
}

func (n catNode) compile(c *compiler, next int) int {
	for i := len(n) - 1; i >= 0; i-- {
		next = n[i].compile(c, next)
	}
	return next
}

func (n altNode) compile(c *compiler, next int) int {
	first := n[len(n)-1].compile(c, next)
	for i := len(n) - 2; i >= 0; i-- {
		first = c.emit(inst{op: opChoice, next: n[i].compile(c, next), other: first})
	}
	return first
}

func (n repeatNode) compile(c *compiler, next int) int {
	end := next
	if n.max == unlimited {
		loop := c.emit(inst{op: opChoice, other: end})
		c.program[loop].next = n.node.compile(c, loop)
		next = loop
	}
	for i := n.min; i < n.max && !c.full(); i++ {
		next = c.emit(inst{op: opChoice, next: n.node.compile(c, next), other: end})
	}
	for i := 0; i < n.min && !c.full(); i++ {
		next = n.node.compile(c, next)
	}
	return next
}

func (n charNode) canBeEmpty() bool { return false }
func (n lookNode) canBeEmpty() bool { return true }

func (n catNode) canBeEmpty() bool {
	for _, part := range n {
		if !part.canBeEmpty() {
			return false
		}
	}
	return true
}

func (n altNode) canBeEmpty() bool {
	for _, part := range n {
		if part.canBeEmpty() {
			return true
		}
	}
	return false
}

func (n repeatNode) canBeEmpty() bool { return n.min == 0 || n.node.canBeEmpty() }

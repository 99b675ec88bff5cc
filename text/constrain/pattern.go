package constrain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern makes the automaton of the texts in which a regular expression of ECMA-262 matches
// somewhere. exact is false if it has fewer texts than the expression, as with \s beyond ASCII, on
// which validators differ.
func pattern(expression string) (a *automaton, exact bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%q is not supported: %w", short(expression), err)
		}
	}()
	parsed, exact, err := parseExpression(expression)
	if err != nil {
		return nil, false, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, false, err
	}
	s := subsets{prog: prog, seen: make([]int, len(prog.Inst))}
	defer func() {
		if s.work > maxPatternWork {
			a, err = nil, fmt.Errorf("it takes too long to compile; use a simpler one")
		}
	}()
	return build(s.key(s.closure([]uint32{uint32(prog.Start)}, syntax.EmptyBeginText)), s.moves, s.accepts), exact, nil
}

// parseExpression parses a regular expression.
func parseExpression(expression string) (_ *syntax.Regexp, exact bool, err error) {
	t := translation{rest: expression, exact: true}
	if err := t.all(); err != nil {
		return nil, false, err
	}
	parsed, err := syntax.Parse(t.out.String(), syntax.Perl)
	if e, ok := errors.AsType[*syntax.Error](err); ok && e.Code == syntax.ErrInvalidRepeatSize {
		err = fmt.Errorf("%s repeats too often: counts are at most 1000, and multiply where they nest; use smaller ones, or maxLength", e.Expr)
	}
	return parsed, t.exact, err
}

// translation writes an expression of ECMA-262 in the syntax of package regexp/syntax, or says what
// in it that cannot hold.
type translation struct {
	rest  string
	out   strings.Builder
	class bool // in brackets
	not   bool // in brackets that begin with ^
	exact bool
}

// spaces are those of any validator's \s, for where none of them may come.
const spaces = `\t-\r\x1c-\x20\x85\x{a0}\x{1680}\x{180e}\x{2000}-\x{200b}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`

// noSpaces are the other characters.
const noSpaces = `\x00-\x08\x0e-\x1b\x21-\x84\x86-\x9f\x{a1}-\x{167f}\x{1681}-\x{180d}\x{180f}-\x{1fff}\x{200c}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`

func (t *translation) all() error {
	for t.rest != "" {
		c, n := utf8.DecodeRuneInString(t.rest)
		before := t.rest
		t.rest = t.rest[n:]
		switch {
		case c == '\\':
			if err := t.escape(); err != nil {
				return err
			}
		case t.class && c == ']':
			t.class = false
			t.out.WriteByte(']')
		case t.class && c == '[':
			t.out.WriteString(`\[`)
		case c == '[':
			t.class, t.not = true, strings.HasPrefix(t.rest, "^")
			t.out.WriteByte('[')
			if t.not {
				t.out.WriteByte('^')
				t.rest = t.rest[1:]
			}
			if strings.HasPrefix(t.rest, "]") {
				return fmt.Errorf("it has an empty class")
			}
		case !t.class && c == '.':
			t.out.WriteString(`[^\n\r\x{2028}\x{2029}]`)
		case !t.class && c == '(' && strings.HasPrefix(t.rest, "?") && !strings.HasPrefix(t.rest, "?:"):
			return fmt.Errorf("it has %q; groups may begin with (?: only", before[:min(len(before), 4)])
		default:
			t.out.WriteString(before[:n])
		}
	}
	return nil
}

// escape translates what follows a backslash.
func (t *translation) escape() error {
	c, n := utf8.DecodeRuneInString(t.rest)
	after := t.rest[n:]
	inRange := t.class && (strings.HasSuffix(t.out.String(), "-") && !strings.HasSuffix(t.out.String(), `\-`))
	switch {
	case t.rest == "":
		return fmt.Errorf("it ends with a backslash")
	case c == 'u' || c == 'x':
		return t.code(c, after)
	case c == 's' || c == 'S':
		t.exact = false
		set := `\s`
		if c == 's' && t.class && t.not {
			set = spaces
		} else if c == 'S' && t.class && t.not {
			set = `\S`
		} else if c == 'S' {
			set = noSpaces
		}
		if !t.class && c == 'S' {
			set = "[" + set + "]"
		}
		if inRange {
			return fmt.Errorf("a range in brackets ends with a class")
		}
		t.out.WriteString(set)
		if t.class && strings.HasPrefix(after, "-") {
			t.out.WriteString(`\-`)
			after = after[1:]
		}
	case c == '0' && (after == "" || after[0] < '0' || after[0] > '9'):
		t.out.WriteString(`\x00`)
	case strings.ContainsRune("dDwWtnvfr", c), c == 'p' || c == 'P':
		t.out.WriteString(`\` + string(c))
		for _, name := range []string{"{Script=", "{sc=", "{General_Category=", "{gc="} {
			if rest, ok := strings.CutPrefix(after, name); ok && (c == 'p' || c == 'P') {
				after = "{" + rest
			}
		}
	case c < utf8.RuneSelf && !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", c):
		t.out.WriteString(`\` + string(c))
	default:
		return fmt.Errorf(`it has \%c`, c)
	}
	t.rest = after
	return nil
}

// code translates \u0041, \u{41} and \x41.
func (t *translation) code(c rune, after string) error {
	digits := map[rune]int{'u': 4, 'x': 2}[c]
	hex, rest := after[:min(len(after), digits)], after[min(len(after), digits):]
	if inner, tail, ok := strings.Cut(strings.TrimPrefix(after, "{"), "}"); c == 'u' && ok && strings.HasPrefix(after, "{") {
		hex, rest, digits = inner, tail, len(inner)
	}
	var code rune
	if len(hex) != digits || strings.Trim(hex, "0123456789abcdefABCDEF") != "" || digits == 0 || digits > 6 {
		return fmt.Errorf(`it has \%c without its digits`, c)
	}
	fmt.Sscanf(hex, "%x", &code)
	if !utf8.ValidRune(code) {
		return fmt.Errorf(`it has \%c%s, which is no character; write those beyond \uffff as \u{1f600}`, c, hex)
	}
	fmt.Fprintf(&t.out, `\x{%x}`, code)
	t.rest = rest
	return nil
}

// subsets are the states of a pattern: which instructions of its program may be next. The text
// before may belong to no match, so a match may always begin.
type subsets struct {
	prog  *syntax.Prog
	work  int
	seen  []int // by instruction: the closure that it is in
	calls int   // of closure
}

// matched is the state behind a match, where all may follow.
const matched = "matched"

func (s *subsets) key(pcs []uint32) string {
	slices.Sort(pcs)
	key := make([]byte, 0, 4*len(pcs))
	for _, pc := range slices.Compact(pcs) {
		if s.prog.Inst[pc].Op == syntax.InstMatch {
			return matched
		}
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	return string(key)
}

func pcsOf(key string) (pcs []uint32) {
	for i := 0; i < len(key); i += 4 {
		pcs = append(pcs, binary.LittleEndian.Uint32([]byte(key[i:])))
	}
	return pcs
}

// closure follows instructions that read nothing, where the text is as flags say. Those that need
// the end of the text stay.
func (s *subsets) closure(todo []uint32, flags syntax.EmptyOp) (out []uint32) {
	s.calls++
	for todo = slices.Clone(todo); len(todo) > 0; {
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.work++; s.seen[pc] == s.calls {
			continue
		}
		s.seen[pc] = s.calls
		switch in := &s.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			todo = append(todo, in.Arg, in.Out)
		case syntax.InstCapture, syntax.InstNop:
			todo = append(todo, in.Out)
		case syntax.InstEmptyWidth:
			if need := syntax.EmptyOp(in.Arg); need&^flags == 0 {
				todo = append(todo, in.Out)
			} else if need == syntax.EmptyEndText {
				out = append(out, pc)
			}
		case syntax.InstFail:
		default:
			out = append(out, pc)
		}
	}
	return out
}

func (s *subsets) accepts(key string) bool {
	return key == matched || s.key(s.closure(pcsOf(key), syntax.EmptyEndText)) == matched
}

// moves splits the characters where some instruction's range begins or ends.
func (s *subsets) moves(key string) (list []move[string]) {
	if key == matched {
		return []move[string]{{0, utf8.MaxRune, matched}}
	}
	if s.work > maxPatternWork {
		return nil
	}
	type reader struct {
		ranges []rune
		to     uint32
	}
	var readers []reader
	cuts := []rune{0}
	for _, pc := range pcsOf(key) {
		in := &s.prog.Inst[pc]
		if in.Op == syntax.InstEmptyWidth {
			continue
		}
		set := in.Rune
		switch {
		case in.Op == syntax.InstRuneAny:
			set = []rune{0, utf8.MaxRune}
		case in.Op == syntax.InstRuneAnyNotNL:
			set = []rune{0, '\n' - 1, '\n' + 1, utf8.MaxRune}
		case len(set) == 1:
			set = []rune{set[0], set[0]}
		}
		readers = append(readers, reader{set, in.Out})
		for i := 0; i < len(set); i += 2 {
			cuts = append(cuts, set[i], set[i+1]+1)
		}
	}
	keys := map[string]string{} // by what reads a character
	var to []uint32
	var own []byte
	slices.Sort(cuts)
	cuts = append(slices.Compact(cuts), utf8.MaxRune+1)
	for i, low := range cuts[:len(cuts)-1] {
		if low > utf8.MaxRune {
			break
		}
		to, own = append(to[:0], uint32(s.prog.Start)), own[:0]
		for j := range readers {
			r := &readers[j]
			for len(r.ranges) > 0 && r.ranges[1] < low {
				r.ranges = r.ranges[2:]
			}
			if len(r.ranges) > 0 && r.ranges[0] <= low {
				to, own = append(to, r.to), binary.LittleEndian.AppendUint32(own, r.to)
			}
		}
		s.work += len(readers)
		key, ok := keys[string(own)]
		if !ok {
			key = s.key(s.closure(to, 0))
			keys[string(own)] = key
		}
		if n := len(list); n > 0 && list[n-1].to == key {
			list[n-1].high = cuts[i+1] - 1
			continue
		}
		list = append(list, move[string]{low, cuts[i+1] - 1, key})
	}
	return list
}

package prove

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// String is the certificate for people.
func (c *Certificate) String() string {
	return c.Summary() + "\nclass:\n" + wrap(c.Class, "  ", 100)
}

// Summary is String without the definition of the class.
func (c *Certificate) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s%s: proved\n\n", c.Model, count(c.Ranks, "rank"), c.meshText())
	fmt.Fprintf(&b, "  The layouts of %d nodes follow from the rules of the operations.\n", c.Nodes)
	b.WriteString("  Every value of the source is computed once, by the same operation on the same operands.\n")
	b.WriteString("  Every partial sum is reduced before anything nonlinear, or an output, takes it, and no value twice.\n")
	if !c.Exact {
		b.WriteString("  Some payloads are rounded for transport, so the result is not exact.\n")
	}
	c.writeParts(&b)
	for _, one := range c.Axes {
		fmt.Fprintf(&b, "\nalong %s, %s, with what is whole along the other axis: %s; a rank sends %s bytes, %d for one token\n",
			one.Axis, count(one.Ranks, "rank"), count(one.Collectives, "collective"), one.Sent, one.SentOne)
		one.writeParts(&b)
	}
	if b.WriteString("\ntotal: " + count(c.Collectives, "collective")); len(c.Axes) == 0 {
		fmt.Fprintf(&b, "; a rank sends %s bytes, %d for one token", c.Sent, c.SentOne)
	} else {
		fmt.Fprintf(&b, "; a rank sends at most %d bytes for one token", c.SentOne)
	}
	fmt.Fprintf(&b, "; weights of a rank %d bytes\n", c.WeightBytes)
	if m := c.Minimum; m.None == "" && m.Unknown == "" {
		fmt.Fprintf(&b, "minimum: %s; a rank sends %d bytes for one token; weights of a rank %d bytes\n", count(m.Collectives, "collective"), m.SentBytes, m.WeightBytes)
	} else if m.Unknown == notOfClass {
		fmt.Fprintf(&b, "minimum: none is stated, since the graph is outside of the class: %s\n", strings.Join(c.Outside, ", "))
	}
	if c.Execution != nil {
		fmt.Fprintf(&b, "\n%s", c.Execution)
	} else {
		b.WriteString("\nnot executed\n")
	}
	return b.String()
}

// writeParts writes the parts that have something to say.
func (c *Certificate) writeParts(b *strings.Builder) {
	for _, p := range c.Parts {
		if len(p.Blocks) > 0 || len(p.Collectives) > 0 || p.verdict() != "the minimum" {
			p.write(b)
		}
	}
}

// meshText is how the title says that ranks are along two axes.
func (c *Certificate) meshText() string {
	if c.Mesh == "" {
		return ""
	}
	return " (" + c.Mesh + ")"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// title names the blocks of a part, numbered ones by ranges.
func (p Part) title() string {
	switch runs := p.runs(); {
	case len(p.Blocks) == 0:
		return "outside of blocks"
	case len(p.Blocks) == 1 || runs == nil:
		return strings.Join(p.Blocks, ", ")
	case len(runs) == 1:
		return fmt.Sprintf("%s and the %d after it", p.Blocks[0], len(p.Blocks)-1)
	default:
		return "layers." + strings.Join(runs, ", ")
	}
}

// runs returns the numbers of blocks layers.N, runs of neighbours as first-last; nil if a block has
// another name.
func (p Part) runs() (runs []string) {
	first, last := 0, -2
	for _, b := range p.Blocks {
		text, _ := strings.CutPrefix(b, "layers.")
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil
		}
		if n != last+1 {
			first, runs = n, append(runs, text)
		} else {
			runs[len(runs)-1] = fmt.Sprintf("%d-%d", first, n)
		}
		last = n
	}
	return runs
}

func (p Part) write(b *strings.Builder) {
	each := ""
	if len(p.Blocks) > 1 {
		each = " each"
	}
	fmt.Fprintf(b, "\n%s: %s%s, %s\n", p.title(), count(len(p.Collectives), "collective"), each, p.verdict())
	for _, c := range p.Collectives {
		c.write(b)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
	for _, why := range p.Inexact {
		fmt.Fprintf(b, "  inexact: %s\n", why)
	}
	for _, r := range p.Rounded {
		fmt.Fprintf(b, "  bound: %s\n", r)
	}
	for i, why := range p.Outside {
		if i == 3 {
			fmt.Fprintf(b, "  outside of the class: %d more\n", len(p.Outside)-i)
			break
		}
		fmt.Fprintf(b, "  outside of the class: %s\n", why)
	}
}

// verdict compares a part with its minimum.
func (p Part) verdict() string {
	m, n := p.Minimum, len(p.Collectives)
	switch {
	case m.Unknown == notOfClass:
		return notOfClass
	case m.Unknown != "":
		return "minimum not established: " + m.Unknown
	case m.None != "":
		return "the class has no placement: " + m.None
	case n > m.Collectives && m.Collectives == 0:
		return "more than the minimum, which is none"
	case n > m.Collectives:
		return fmt.Sprintf("more than the minimum of %d (%s)", m.Collectives, strings.Join(m.Launches, "; "))
	case n < m.Collectives:
		return fmt.Sprintf("fewer than the minimum of the class, %d", m.Collectives)
	case p.Sent.parts() > m.parts:
		return fmt.Sprintf("the minimum, but %d bytes are sent for one token where %d suffice (%s)", p.SentOne, m.SentBytes, strings.Join(m.Launches, "; "))
	}
	return "the minimum"
}

func (c Collective) write(b *strings.Builder) {
	needed := "whole"
	if c.to == graph.Sharded {
		needed = "split"
	}
	fmt.Fprintf(b, "  %s %s\n", c.Kind, strings.Join(c.Values, ", "))
	fmt.Fprintf(b, "    %s; %s\n", strings.Join(c.Reasons, ", "), c.need(needed))
	fmt.Fprintf(b, "    payload %s elements, %s bytes; a rank sends %s bytes, %d for one token\n", c.Elements, c.Payload, c.Sent, c.SentOne)
}

func (c Collective) need(how string) string {
	switch n := len(c.WholeFor); n {
	case 0:
		return "nothing needs it"
	case 1:
		return fmt.Sprintf("%s needs it %s", c.WholeFor[0], how)
	default:
		return fmt.Sprintf("%s need it %s", strings.Join(c.WholeFor, ", "), how)
	}
}

// wrap breaks text into indented lines.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+len(word) >= width {
			b.WriteString(line[:len(line)-1] + "\n")
			line = indent
		}
		line += word + " "
	}
	return b.String() + line[:len(line)-1] + "\n"
}

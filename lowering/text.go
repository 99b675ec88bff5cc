package lowering

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
)

// String writes the schedule as text: the tokens of a piece, regions, buffers, views, then steps
// with their loops and streams, and what is there for some outputs only. [ParseSchedule] reads it
// back.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "schedule %q rank=%d ranks=%d%s\n", s.Name, s.Rank, s.Ranks, s.placeText())
	if s.PieceTokens > 0 {
		fmt.Fprintf(&b, "pieces of %d tokens\n", s.PieceTokens)
	}
	for i, bytes := range s.Bytes {
		if bytes > 0 {
			fmt.Fprintf(&b, "region %s %d bytes\n", Space(i), bytes)
		}
	}
	for _, buf := range s.Buffers {
		fmt.Fprintf(&b, "buffer %s %s%+d %d bytes", buf.Name, buf.Space, buf.Offset, buf.Bytes)
		if buf.Narrow != graph.NarrowNever {
			fmt.Fprintf(&b, " as %s", buf.Narrow)
		}
		fmt.Fprintf(&b, " : %s", buf.Type)
		if buf.Storage != nil {
			b.WriteString(buf.Storage.String())
		}
		if buf.Part != nil {
			b.WriteString(buf.Part.String())
		}
		b.WriteString(s.outputNames(buf.For) + "\n")
	}
	for _, r := range s.views() {
		fmt.Fprintf(&b, "view %s = %s[%d:%d] : %s\n", r.Name, s.Buffers[r.Buffer].Name, r.Offset, r.Stride, r.Type)
	}
	for _, st := range s.Init {
		fmt.Fprintf(&b, "init %s\n", st)
	}
	for _, st := range s.Steps {
		switch st.Kind {
		case Record, Wait:
			fmt.Fprintln(&b, st)
		default:
			if st.Loop > 0 {
				fmt.Fprintf(&b, "loop %d ", st.Loop)
			}
			fmt.Fprintf(&b, "%s %s%s\n", st.Stream, st, s.outputNames(st.For))
		}
	}
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "output %s = %s\n", o.Name, o.Ref.Name)
	}
	return b.String()
}

// views lists the tensors that are not a buffer as a whole, in order of use.
func (s *Schedule) views() []Ref {
	var out []Ref
	seen := map[string]bool{}
	for _, b := range s.Buffers {
		seen[b.Name] = true
	}
	s.refs(func(r *Ref) {
		if !seen[r.Name] {
			seen[r.Name] = true
			out = append(out, *r)
		}
	})
	return out
}

// refs visits every tensor that steps and outputs name.
func (s *Schedule) refs(visit func(*Ref)) {
	for _, steps := range [][]Step{s.Init, s.Steps} {
		for i := range steps {
			for j := range steps[i].Args {
				visit(&steps[i].Args[j])
			}
			for j := range steps[i].Results {
				visit(&steps[i].Results[j])
			}
		}
	}
	for i := range s.Outputs {
		visit(&s.Outputs[i].Ref)
	}
}

// String writes the step as schedule text does, without the stream of a launch.
func (st Step) String() string {
	switch st.Kind {
	case Record:
		return fmt.Sprintf("record %d on %s", st.Event, st.Stream)
	case Wait:
		return fmt.Sprintf("wait %d on %s", st.Event, st.Stream)
	}
	call := fmt.Sprintf("%s %s%s", st.Op.Name, names(st.Args), attrText(st.Op, st.Attrs))
	switch st.Op {
	case Send, SendStates:
		return call
	case Receive:
		call = strings.TrimSuffix(call, " ")
	}
	return names(st.Results) + " = " + call
}

func names(refs []Ref) string {
	var out []string
	for _, r := range refs {
		out = append(out, r.Name)
	}
	return strings.Join(out, ", ")
}

// attrText writes attributes that are not at their default as graph text does:
// {eps=1e-05 groups=2}.
func attrText(op *graph.Op, a graph.Attrs) string {
	defaults := map[string]any{}
	for _, spec := range op.Attrs {
		defaults[spec.Name] = spec.Default
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] == defaults[name] {
			continue
		}
		v := fmt.Sprint(a[name])
		switch x := a[name].(type) {
		case float64:
			v = strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64))
		case string:
			v = strconv.Quote(x)
		}
		parts = append(parts, name+"="+v)
	}
	if parts == nil {
		return ""
	}
	return " {" + strings.Join(parts, " ") + "}"
}

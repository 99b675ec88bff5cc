package prove

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels/codec"
)

// Rounded is what a collective that is not exact does to a value: how far each element is, at
// most, from the exact sum of the ranks' summands, or from itself where it is only gathered.
type Rounded struct {
	Value    string      `json:"value"`
	Ranks    int         `json:"ranks"`    // whose summands are added; 1: it is gathered
	Summands graph.DType `json:"-"`        // NoDType: f32
	Sum      graph.DType `json:"-"`        // in which the sum goes to all; NoDType: f32
	InFormat bool        `json:"-"`        // summands are added in their format, and not in f32
	Block    int         `json:"elements"` // of a row that share a bound; 1: each has its own
	// Factor times the ranks' largest magnitudes among these elements, added up, and Least
	// more, is the bound. It holds as long as nothing leaves the range of a format.
	Factor float64 `json:"factor"`
	Least  float64 `json:"least"`
}

// MarshalJSON writes the formats, too.
func (r Rounded) MarshalJSON() ([]byte, error) {
	type plain Rounded
	return json.Marshal(struct {
		plain
		Summands string `json:"summands"`
		Sum      string `json:"sum"`
	}{plain(r), formatOf(r.Summands), formatOf(r.Sum)})
}

func formatOf(d graph.DType) string {
	return cmp.Or(d, graph.F32).String()
}

// Most is the bound of the elements of a row, of which summands has each rank's.
func (r *Rounded) Most(summands [][]float32) []float64 {
	out := make([]float64, len(summands[0]))
	for at := 0; at < len(out); at += r.Block {
		end := min(at+r.Block, len(out))
		sum := 0.0
		for _, row := range summands {
			most := 0.0
			for _, v := range row[at:end] {
				most = max(most, math.Abs(float64(v)))
			}
			sum += most
		}
		for j := at; j < end; j++ {
			out[j] = r.Factor*sum + r.Least
		}
	}
	return out
}

// roundoff is what one rounding to a format does: an element is off by at most share of the
// largest magnitude of its block, and least more.
func roundoff(d graph.DType) (share, least float64, block int) {
	c, inBlocks := d.Codec()
	switch {
	case inBlocks:
		least = codec.Bound(c, 0)
		return codec.Bound(c, 1), least, c.Block
	case d == graph.F16:
		return 0x1p-11, 0x1p-25, 1
	case d == graph.BF16:
		return 0x1p-8, 0x1p-134, 1
	}
	return 0, 0, 1
}

// bound works out what the two roundings and the sum between them do: the first is off by a
// share a of each rank's block, so that these are larger by that, too, when they are added in
// f32, which rounds ranks-1 times, and when the sum is rounded.
func (r *Rounded) bound() {
	a, least, block := roundoff(r.Summands)
	b, last, other := roundoff(r.Sum)
	n := float64(r.Ranks)
	added := (n - 1) * 0x1p-24
	if added /= 1 - added; r.InFormat { // the sum is in the format, at once
		added, b, last = math.Pow(1+a, n-1)-1, 0, 0
	}
	r.Block = max(block, other)
	r.Factor = (a + (1+a)*(added+b*(1+added))) * (1 + 0x1p-40)
	r.Least = (n*least*(1+added)*(1+b) + last) * (1 + 0x1p-40)
}

// roundings lists what is rounded for collectives of some nodes.
func (s *sums) roundings(g *graph.Graph, nodes []*graph.Node, block string) []Rounded {
	list := []Rounded{}
	for _, n := range nodes {
		if n.Op.Class != graph.Collective {
			continue
		}
		for i, v := range n.Args {
			r := Rounded{Value: local(plain(v).Name, block), Ranks: ranksOf(g)}
			switch {
			case reduces(n):
				r.Summands, r.Sum = travels(v), s.gathered(n, n.Results[i])
				r.InFormat = r.Summands.Float() && r.Summands != graph.F32 && n.Attrs.Text("acc") == ""
			case s.inTransit(v) || v.Def.Op.Name == "quantize" && s.inTransit(v.Def.Args[0]):
				continue // what it is the sum of has it
			default:
				r.Ranks, r.Sum = 1, travels(v)
			}
			if r.Summands == graph.NoDType && r.Sum == graph.NoDType {
				continue
			}
			r.bound()
			list = append(list, r)
		}
	}
	return list
}

// narrows reports whether a collective moves values in another format than they are computed in.
func (s *sums) narrows(n *graph.Node) bool {
	return slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return v.Type.DType != s.unrounded(v).DType })
}

// unrounded is the type of a value in the format in which the source computes it.
func (s *sums) unrounded(v *graph.Value) graph.Type {
	t := v.Type
	t.DType = s.origin[v].Type.DType
	return t
}

// plain is a value before it was rounded.
func plain(v *graph.Value) *graph.Value {
	if v.Def.Op.Name == "quantize" {
		return v.Def.Args[0]
	}
	return v
}

// travels is what a value was rounded to before it travels.
func travels(v *graph.Value) graph.DType {
	if v.Def.Op.Name == "quantize" {
		return v.Type.DType
	}
	return graph.NoDType
}

// gathered is in which format a sum comes to all: its own, or that in which what a rank has of
// it travels on.
func (s *sums) gathered(n *graph.Node, v *graph.Value) graph.DType {
	if v.Type.DType != graph.F32 {
		return v.Type.DType
	}
	i := slices.IndexFunc(s.users[v], func(u *graph.Node) bool { return u.Op.Name == "quantize" })
	if n.Op.To == graph.Sharded && i >= 0 && s.inTransit(v) {
		return s.users[v][i].Results[0].Type.DType
	}
	return graph.NoDType
}

// String says it for people.
func (r Rounded) String() string {
	of := "its magnitude"
	if r.Block > 1 {
		of = fmt.Sprintf("the largest magnitude among its %d", r.Block)
	}
	if r.Ranks > 1 {
		of = fmt.Sprintf("%s on each of %d ranks, added up,", of, r.Ranks)
	}
	how := fmt.Sprintf("summands as %s, sum as %s", formatOf(r.Summands), formatOf(r.Sum))
	switch {
	case r.Ranks == 1:
		how = "gathered as " + formatOf(r.Sum)
	case r.InFormat:
		how = "added up in " + formatOf(r.Summands)
	}
	return fmt.Sprintf("%s, %s: an element is off by at most %.3g of %s and %.2g", r.Value, how, r.Factor, of, r.Least)
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/spf13/cobra"
)

// executions are the columns of the textbook's account of sharded activations, the strategies that
// are these, and how tokens lie.
var executions = []struct {
	name, strategy string
	place          graph.PlaceKind
}{{"classic", "channel", graph.Whole}, {"batch-sharded", "batch", graph.BySequence}, {"sequence-sharded", "sequence", graph.Even}, {"context-parallel", "context", graph.InParts}}

// table is the account of a model: what is sent and kept where ranks have all of the
// residual stream, and where they have shares of its tokens.
type table struct {
	Model string `json:"model"`
	Ranks int    `json:"ranks"`
	stepSizes
	Hidden     int               `json:"hidden"`
	Size       int               `json:"bytes_per_element"` // but of payloads
	Payload    string            `json:"payload,omitempty"`
	Executions []executionReport `json:"executions"`
}

type executionReport struct {
	Name     string        `json:"name"`
	Strategy string        `json:"strategy"`
	Residual amount        `json:"residual_bytes"` // of the rank that has most
	Blocks   []blockReport `json:"blocks"`
}

type blockReport struct {
	Name  string       `json:"name"`
	Times int          `json:"times"`
	Lines []lineReport `json:"sublayers"`
	Sent  amount       `json:"sent_bytes_per_rank"`
	Cache amount       `json:"cache_bytes"` // of the rank that has most
}

// lineReport is a sublayer, and what it sends.
type lineReport struct {
	Sublayer string `json:"sublayer"`
	Kind     string `json:"kind"` // of the collective; none: there is none
	Width    int    `json:"elements_per_token"`
	Sent     amount `json:"sent_bytes_per_rank"`
}

// amount is a number of bytes by the formula, as counted in the schedules, and as the
// textbook has it, which knows no scans.
type amount struct {
	Formula  int64  `json:"formula"`
	Counted  int64  `json:"counted"`
	Textbook *int64 `json:"textbook"`
}

func (f amount) plus(g amount) amount {
	f.Formula, f.Counted = f.Formula+g.Formula, f.Counted+g.Counted
	if g.Textbook != nil {
		f.Textbook = bytesOf(*f.Textbook + *g.Textbook)
	}
	return f
}

func bytesOf(n int64) *int64 { return &n }

// accountOf computes the account.
func accountOf(c *cobra.Command, g *graph.Graph, s krait.Sharding, z stepSizes) (*table, error) {
	switch {
	case s.Strategy != "" || s.Place != "" || s.States != "":
		return nil, errors.New("--table compares strategies, with states in f32; leave out --strategy, --place and --states")
	case s.Ranks < 2:
		return nil, fmt.Errorf("--table on %s: nothing is sent; give --tp 2 or more", ranks(max(s.Ranks, 1)))
	}
	if g.Stage >= graph.PartitionedStage {
		return nil, errors.New("the graph is partitioned; --table needs it at an earlier stage")
	}
	out := &table{Model: g.Name, Ranks: s.Ranks, stepSizes: z, Size: graph.F32.Bytes(), Payload: s.Payload}
	for _, x := range executions {
		s.Strategy = x.strategy
		a := accountantOf(z, s.Ranks, x.strategy, x.place)
		var err error
		if a.g, err = compileTo(c, graph.NoStage, g, s); err != nil {
			return nil, err
		}
		if a.schedules, err = interruptible(c, "lower", func() ([]*lowering.Schedule, error) { return lowering.Lower(a.g) }); err != nil {
			return nil, err
		}
		r, err := a.report(x.name, z)
		if err != nil {
			return nil, err
		}
		out.Hidden = a.hidden
		out.Executions = append(out.Executions, *r)
	}
	return out, nil
}

// accountant goes through a graph that is laid over ranks.
type accountant struct {
	g         *graph.Graph
	schedules []*lowering.Schedule
	z         graph.Sizes // the prompts
	p         int64
	strategy  string
	place     graph.PlaceKind
	hidden    int // width of the residual stream
	sent      map[string]float64
}

// accountantOf accounts for a strategy by which tokens lie so.
func accountantOf(z stepSizes, ranks int, strategy string, place graph.PlaceKind) *accountant {
	largest := place
	if place < graph.BySequence {
		largest = graph.BySequence
	}
	return &accountant{z: z.on(largest, ranks, z.prefill()), p: int64(ranks), strategy: strategy, place: place}
}

func (a *accountant) report(name string, z stepSizes) (*executionReport, error) {
	plan, err := lowering.NewPlan(a.schedules)
	if err != nil {
		return nil, err
	}
	if err := z.fits(plan); err != nil {
		return nil, err
	}
	a.sent = map[string]float64{}
	for i := range plan.Collectives {
		c := &plan.Collectives[i]
		a.sent[c.Name] = c.SentPerRank(a.z)
	}
	residual := a.residual()
	if residual == nil {
		return nil, errors.New("--table needs a residual stream, and no value with tokens passes between blocks")
	}
	a.hidden = graph.RowElems(residual.Type.Dims)
	rows := a.z.Tokens
	switch a.place {
	case graph.Even:
		rows = (rows + a.p - 1) / a.p
	case graph.BySequence, graph.InParts:
		rows = graph.EvenShare(a.place, z.Batch, z.Prompt, a.p)
	}
	bytes := int64(a.hidden * graph.F32.Bytes())
	out := &executionReport{Name: name, Strategy: a.strategy, Residual: amount{rows * bytes, residual.Type.Local(int(a.p), 0).Bytes().At(a.z), bytesOf(rows * bytes)}}
	for _, block := range a.g.Blocks() {
		b := a.block(block)
		if i := slices.IndexFunc(out.Blocks, func(o blockReport) bool { return o.same(&b) }); i >= 0 {
			out.Blocks[i].Times++
			continue
		}
		out.Blocks = append(out.Blocks, b)
	}
	return out, nil
}

// residual is the first value with tokens that passes from one block to another.
func (a *accountant) residual() *graph.Value {
	for _, n := range a.g.Nodes {
		for _, v := range n.Args {
			d := v.Type.Dims
			if v.Def.Op.Class != graph.Leaf && v.Def.Block() != "" && v.Def.Block() != n.Block() && len(d) == 2 && d[0].Sym == graph.Tokens {
				return v
			}
		}
	}
	return nil
}

// same reports whether two blocks have the same lines.
func (b *blockReport) same(c *blockReport) bool {
	equal := func(f, g amount) bool { return f.Formula == g.Formula && f.Counted == g.Counted }
	return equal(b.Cache, c.Cache) && slices.EqualFunc(b.Lines, c.Lines, func(x, y lineReport) bool {
		return x.Sublayer == y.Sublayer && x.Kind == y.Kind && equal(x.Sent, y.Sent)
	})
}

// block lists the collectives of a block by sublayers: a sum of the width of the residual
// stream ends one, which has a core if something in it keeps states.
func (a *accountant) block(name string) blockReport {
	b := blockReport{Name: name, Times: 1, Sent: amount{Textbook: bytesOf(0)}, Cache: a.cache(name)}
	var nodes []*graph.Node
	for _, n := range a.g.Nodes {
		if n.Block() == name && n.Op.Class != graph.Leaf {
			nodes = append(nodes, n)
		}
	}
	core := false // in the sublayer so far
	for i, n := range nodes {
		line := lineReport{Sublayer: "core"}
		switch {
		case n.Op.States != nil:
			if core = true; !attends(n) {
				continue
			}
			line.Sent = amount{Textbook: bytesOf(a.exchangedKeys(n))}
		case n.Op.Class != graph.Collective:
			continue
		case n.Args[0].Type.Dims[0].Sym == graph.Seqs:
			line.Sublayer = "states"
		case a.place == graph.InParts:
			if line.Sublayer = "output"; a.coreFollows(nodes[i+1:]) {
				line.Sublayer = "keys and values"
			}
		case n.Args[0].Type.Layout.ByBatch():
			if line.Sublayer = "MLP, up"; a.coreFollows(nodes[i+1:]) {
				line.Sublayer = "projections"
			}
			line.Sent.Textbook = bytesOf(0)
		case a.ends(n):
			if line.Sublayer = "MLP, down"; core {
				line.Sublayer = "output"
			}
			core = false
			phases := 1
			if a.strategy == "channel" {
				phases = 2
			}
			line.Sent.Textbook = bytesOf(a.ring(phases, a.z.Tokens, n.Args[0].Type.DType.RowBytes(a.hidden)))
		}
		if n.Op.Class == graph.Collective {
			a.count(n, &line)
		}
		b.Lines = append(b.Lines, line)
		b.Sent = b.Sent.plus(line.Sent)
	}
	return b
}

// count fills in what a collective sends.
func (a *accountant) count(n *graph.Node, line *lineReport) {
	phases := 1
	if n.Op.From == graph.Partial && n.Op.To == graph.Replicated {
		phases = 2
	}
	for _, v := range n.Args {
		width := graph.RowElems(v.Type.Dims)
		line.Width += width
		line.Sent.Formula += a.ring(phases, int64(v.Type.Dims[0].At(a.z)), v.Type.DType.RowBytes(width))
	}
	line.Kind, line.Sent.Counted = n.Op.Name, int64(a.sent[n.Name()])
}

// ends reports whether a collective sums what has the width of the residual stream.
func (a *accountant) ends(n *graph.Node) bool {
	return n.Op.From == graph.Partial && slices.ContainsFunc(n.Args, func(v *graph.Value) bool { return graph.RowElems(v.Type.Dims) == a.hidden })
}

// coreFollows reports whether something keeps states before the sublayer ends.
func (a *accountant) coreFollows(nodes []*graph.Node) bool {
	for _, n := range nodes {
		if n.Op.States != nil || n.Op.Class == graph.Collective && a.ends(n) {
			return n.Op.States != nil
		}
	}
	return false
}

// ring is what a rank sends of rows, in a number of phases.
func (a *accountant) ring(phases int, rows int64, bytes int) int64 {
	return int64(phases) * (a.p - 1) * rows * int64(bytes) / a.p
}

// exchangedKeys is what the textbook lets ranks gather of keys and values, where each has
// those of its tokens only.
func (a *accountant) exchangedKeys(n *graph.Node) int64 {
	if a.place != graph.Even && a.place != graph.InParts {
		return 0
	}
	width := 0
	for _, p := range n.Op.States {
		width += graph.RowElems(n.Args[p.Operand].Type.Dims)
	}
	return a.ring(1, a.z.Tokens, width*graph.F32.Bytes())
}

// cache is the KV cache of the rank that has most, for the prompts. By formula a rank keeps the KV
// heads that its query heads read, so that ranks whose heads share one keep a copy each.
func (a *accountant) cache(block string) amount {
	var out amount
	var all int64
	for _, n := range a.g.Nodes {
		if n.Block() != block || !attends(n) {
			continue
		}
		heads, most := a.kvHeads(n)
		for _, p := range n.Op.States {
			t := n.Args[p.Operand].Type
			bytes := int64(graph.RowElems(t.Dims)*t.DType.Bytes()) * a.z.Tokens
			all += bytes
			out.Formula += bytes / heads * most
		}
	}
	for _, s := range a.schedules {
		var n int64
		for i := range s.Buffers {
			if b := &s.Buffers[i]; b.Space == lowering.Cache && graph.BlockOf(b.Name) == block {
				n += b.Bytes * a.z.Tokens
			}
		}
		out.Counted = max(out.Counted, n)
	}
	out.Textbook = bytesOf(all / a.p)
	return out
}

// attends reports whether a node reads and extends a KV cache.
func attends(n *graph.Node) bool {
	return slices.ContainsFunc(n.Op.States, func(p graph.StatePair) bool { return n.Args[p.Operand].Type.Ragged() })
}

// kvHeads counts the KV heads of attention, and those that the query heads of one rank read at
// most.
func (a *accountant) kvHeads(n *graph.Node) (all, most int64) {
	groups, heads, _ := graph.Groups(n)
	if a.place == graph.InParts { // ranks have all heads
		return int64(groups), int64(groups)
	}
	share := heads / groups
	for rank := range int(a.p) {
		if own := graph.Owned(heads, int(a.p), rank); own.Len > 0 {
			most = max(most, int64((own.End()-1)/share-own.Start/share+1))
		}
	}
	return int64(groups), most
}

// uneven reports whether some rank keeps more of a KV cache than an even share of it.
func (t *table) uneven() bool {
	return slices.ContainsFunc(t.Executions, func(x executionReport) bool {
		return slices.ContainsFunc(x.Blocks, func(b blockReport) bool { return b.Cache.Formula > *b.Cache.Textbook })
	})
}

func (t *table) print(w io.Writer) {
	prompts, _, _ := strings.Cut(t.stepSizes.String(), ",")
	fmt.Fprintf(w, "%s on %s; %s of %s, width %s, %d bytes an element", t.Model, ranks(t.Ranks), prompts, count(int(t.Prompt), "token"), thousands(int64(t.Hidden)), t.Size)
	if t.Payload != "" {
		fmt.Fprintf(w, ", collectives in %s", t.Payload)
	}
	fmt.Fprintln(w)
	for _, x := range t.Executions {
		fmt.Fprintf(w, "\n%-42s %-14s %8s %16s %16s %16s\n", x.Name+" ("+x.Strategy+")", "collective", "width", "formula", "counted", "textbook")
		for _, b := range x.Blocks {
			name := b.Name
			if b.Times > 1 {
				name += fmt.Sprintf(" and %d like it", b.Times-1)
			}
			for _, l := range b.Lines {
				kind, width := l.Kind, thousands(int64(l.Width))
				if kind == "" {
					kind, width = "–", "–"
				}
				fmt.Fprintf(w, "  %-40s %-14s %8s %s\n", name+", "+l.Sublayer, kind, width, l.Sent)
			}
			fmt.Fprintf(w, "  %-40s %-14s %8s %s\n", name+", sent", "", "", b.Sent)
			if b.Cache.Counted > 0 {
				fmt.Fprintf(w, "  %-40s %-14s %8s %s\n", name+", cache", "", "", b.Cache)
			}
		}
		fmt.Fprintf(w, "  %-40s %-14s %8s %s\n", "residual stream", "", "", x.Residual)
	}
	fmt.Fprintln(w, "bytes for the prompts: what a rank sends, in rings, and the most that a rank holds. The textbook's\n"+
		"account has no scans, and no gather before projections: docs/sharded-activations.md gives the reason")
	if t.uneven() {
		fmt.Fprintln(w, "cache: a rank keeps the KV heads that its query heads read, so a KV head of several ranks is stored several times,\n"+
			"and context-parallel ranks, each of which decodes, keep all; the textbook divides all by the ranks")
	}
}

// String writes the three numbers.
func (f amount) String() string {
	book := "–"
	if f.Textbook != nil {
		book = thousands(*f.Textbook)
	}
	return fmt.Sprintf("%16s %16s %16s", thousands(f.Formula), thousands(f.Counted), book)
}

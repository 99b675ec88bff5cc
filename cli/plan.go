package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session"
	"github.com/spf13/cobra"
)

func newPlan() *cobra.Command {
	var s krait.Sharding
	var batch, prompt int
	var compare, account bool
	var out output
	from := newGraphArg()
	hw := hardwareFlags{}
	c := &cobra.Command{
		Use:   "plan [flags] [DIR | FILE.ir]",
		Short: "Print memory, collectives and kernels of a model",
		Long: `Plan lowers a model and prints, from the schedules: bytes of weights, state, KV cache and
activations of each rank, the payload of each collective, and kernels per token. A FILE.ir is
graph text at any stage; the passes that remain run on it. The KV cache holds the prompts
and one more token. Activations are those of a prefill of --batch prompts of --prompt tokens in
one step, and of a decode step.

--compare plans with every strategy and predicts the time of a step on --hw, and the share of it
in collectives: with few tokens the number of launches matters, with many the bytes. krait
simulate predicts more.

--table compares replicated with sharded activations and context parallelism, also with --payload.
For each sublayer it prints the collective and the bytes that a rank sends for the prompts (by
formula, counted in the schedule, and by the textbook), and the sizes of the residual stream and the
KV cache of a rank. With --prompt 1 that is a decode step.

Without DIR it uses the embedded model.`,
		Example: `  krait plan --tp 4
  krait plan --tp 4 --table --batch 8 --prompt 2048
  krait plan --tp 4 --compare --hw a6000-pcie
  krait plan ~/models/mamba-2.8b-hf --tp 4 --batch 8 --prompt 1024`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if hw.nodes != 0 && !compare {
				return errors.New("--nodes is for times, which --compare predicts: leave it out, or add --compare")
			}
			if batch < 1 || prompt < 1 {
				return fmt.Errorf("--batch %d and --prompt %d: both must be at least 1", batch, prompt)
			}
			g, _, err := from.read(c, args)
			if err != nil {
				return err
			}
			z := stepSizes{Batch: int64(batch), Prompt: int64(prompt)}
			if account {
				if compare {
					return errors.New("--table and --compare exclude each other: leave out one")
				}
				t, err := accountOf(c, g, s, z)
				if err != nil {
					return err
				}
				return out.print(c, t, t.print)
			}
			if compare {
				if s.Strategy != "" || s.Place != "" {
					return errors.New("--compare plans with every strategy; leave out --strategy and --place")
				}
				d, err := hw.device(hardwareName(c))
				if err != nil {
					return err
				}
				if err := hw.spread(d, worldRanks(&s, g)); err != nil {
					return err
				}
				d.Unlimited = true
				r, err := comparisonOf(c, g, s, d, z)
				if err != nil {
					return err
				}
				return out.print(c, r, r.print)
			}
			r, err := planBy(c, g, s, z)
			if err != nil {
				return err
			}
			for _, f := range g.WeightFormats() {
				r.Formats = append(r.Formats, formatReport{f.DType.String(), f.Bytes})
				r.blocks = r.blocks || f.DType.Quantized()
			}
			return out.print(c, r, r.print)
		},
	}
	from.add(c)
	out.add(c)
	shardingFlags(c, &s)
	c.Flags().IntVar(&batch, "batch", 1, "sequences")
	c.Flags().IntVar(&prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().BoolVar(&compare, "compare", false, "compare all strategies")
	c.Flags().BoolVar(&account, "table", false, "print bytes sent per sublayer, with replicated and sharded activations")
	ofHardware(c, defaultHardware)
	hw.addNodes(c)
	c.Flags().Lookup("hw").Usage = "hardware profile for --compare and --strategy auto: a name or a file"
	return c
}

// planBy plans with a sharding, also of prefill where that has one of its own.
func planBy(c *cobra.Command, g *graph.Graph, s krait.Sharding, z stepSizes) (*planReport, error) {
	s, err := resolve(c, s, g)
	if err != nil {
		return nil, err
	}
	all, err := lowered(c, g, s)
	if err != nil {
		return nil, err
	}
	p, err := lowering.NewPlan(all)
	if err != nil {
		return nil, err
	}
	r, err := planOf(all[0].Name, p, z)
	if of, ok := s.ForPrefill(); ok && err == nil {
		r.InPlace = all[0].InPlace()
		r.phase, r.Strategy = "decode", cmp.Or(s.Strategy, s.Place, passes.Strategies[0].Name)
		if r.Prefill, err = planBy(c, g, of, z); err == nil {
			r.Prefill.phase, r.Prefill.Strategy = "prefill", of.Strategy
		}
	}
	return r, err
}

// lowered makes the schedules of a model or of graph text, as they run.
func lowered(c *cobra.Command, g *graph.Graph, s krait.Sharding) ([]*lowering.Schedule, error) {
	g, err := compileTo(c, graph.NoStage, g, s)
	if err != nil {
		return nil, err
	}
	return interruptible(c, "lower", func() ([]*lowering.Schedule, error) { return session.Lower(g, s, 0, nil) })
}

func inBlock(st lowering.Step, block string) bool { return graph.BlockOf(st.Name) == block }

// stepSizes are the sizes of a plan: a prefill of all prompts in one step, then decode.
type stepSizes struct {
	Batch  int64 `json:"batch"`
	Prompt int64 `json:"prompt_tokens"`
}

func (z stepSizes) prefill() graph.Sizes {
	return graph.Sizes{Tokens: z.Batch * z.Prompt, Seqs: z.Batch, Rows: z.Batch}
}

// on says, of sequences of one length, how much the rank has that has most whole ones, or parts of
// them.
func (z stepSizes) on(place graph.PlaceKind, ranks int, s graph.Sizes) graph.Sizes {
	s.Largest = graph.EvenShare(place, s.Seqs, s.Tokens/s.Seqs, int64(ranks))
	return s
}

func (z stepSizes) decode() graph.Sizes {
	return graph.Sizes{Tokens: z.Batch, Seqs: z.Batch, Rows: z.Batch}
}

func (z stepSizes) String() string {
	return fmt.Sprintf("%s, %s of %s, then one token each", count(int(z.Batch), "sequence"), plural(int(z.Batch), "prompt"), count(int(z.Prompt), "token"))
}

// mostBytes is larger than any memory, and safe from overflow.
const mostBytes = 1 << 62

// fits is an error where a number of a plan would not fit.
func (z stepSizes) fits(p *lowering.Plan) error {
	most := float64(z.Batch) * (float64(z.Prompt) + 1)
	if most < mostBytes {
		for _, r := range p.Ranks {
			most = max(most, r.Arena.Float(z.prefill()), float64(r.State)*float64(z.Batch), float64(r.Cache)*float64(z.Batch)*(float64(z.Prompt)+1))
		}
		sent := 0.0
		for _, c := range p.Collectives {
			sent += c.SentPerRank(z.prefill())
			most = max(most, c.Bytes.Float(z.prefill()), sent)
		}
	}
	if most >= mostBytes {
		return fmt.Errorf("--batch %d and --prompt %d: the bytes overflow 64 bits; give smaller ones", z.Batch, z.Prompt)
	}
	return nil
}

// planReport is the plan of a model.
type planReport struct {
	Model string `json:"model"`
	Mesh  string `json:"mesh,omitempty"`
	stepSizes
	Formats     []formatReport     `json:"weight_formats,omitempty"`
	Ranks       []rankReport       `json:"ranks"` // of a replica
	Stages      []stageReport      `json:"stages,omitempty"`
	Collectives []collectiveReport `json:"collectives"`
	Sent        perStep            `json:"sent_bytes_per_rank"`
	// Prefill is the plan of prefill where that has a strategy of its own, Strategy that of the plan,
	// and InPlace the weights of rank 0 that a CPU reads from the file, where prefill's are, too.
	Prefill  *planReport `json:"prefill,omitempty"`
	Strategy string      `json:"strategy,omitempty"`
	InPlace  int64       `json:"weight_bytes_in_place,omitempty"`

	phase  string
	mesh   graph.Mesh
	blocks bool // some weights are in blocks
}

// formatReport is the bytes of the weights of all ranks in a number format.
type formatReport struct {
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
}

// stageReport is a pipeline stage.
type stageReport struct {
	Stage   int     `json:"stage"`
	First   string  `json:"first_block"`
	Last    string  `json:"last_block"`
	Blocks  int     `json:"blocks"`
	Weights int64   `json:"weight_bytes"`        // of its first rank
	Shared  int64   `json:"shared_weight_bytes"` // of these, those that other stages have as well
	Passed  perStep `json:"passed_bytes"`        // by a rank to the next stage
}

type rankReport struct {
	Weights     int64   `json:"weight_bytes"`
	State       int64   `json:"state_bytes"`
	Cache       int64   `json:"cache_bytes"`
	Activations perStep `json:"activation_bytes"`
	Kernels     int     `json:"kernels"`
	Collectives int     `json:"collectives"`
	PeerNorms   int     `json:"kernels_with_all_reduce,omitempty"`
}

// perStep is a number of bytes in the step of the prompts, and in one of decoding.
type perStep struct {
	Prompt int64 `json:"prompt"`
	Decode int64 `json:"decode"`
}

// collectiveReport is a collective of one block, or of several equal ones.
type collectiveReport struct {
	Name     string  `json:"name"`
	Times    int     `json:"times"`
	Kind     string  `json:"kind"`
	Along    string  `json:"along,omitempty"` // the axis of a mesh
	Elements string  `json:"elements"`
	Payload  perStep `json:"payload_bytes"`
}

// planOf is the plan of the first replica of a mesh, which has an even share of the batch.
func planOf(name string, p *lowering.Plan, z stepSizes) (*planReport, error) {
	replicas := p.Mesh.Along(graph.DP)
	batch := z
	z.Batch = (z.Batch + int64(replicas) - 1) / int64(replicas)
	if err := z.fits(p); err != nil {
		return nil, err
	}
	prefill, decode := z.on(p.RowPlace, p.RowRanks, z.prefill()), z.on(p.RowPlace, p.RowRanks, z.decode())
	steps := func(a graph.Poly) perStep { return perStep{a.At(prefill), a.At(decode)} }
	out := &planReport{Model: name, stepSizes: batch, mesh: p.Mesh, Collectives: []collectiveReport{}, Sent: perStep{p.Sent(prefill), p.Sent(decode)}}
	for i, x := range p.Stages {
		s := stageReport{Stage: i, First: x.Blocks[0], Last: x.Blocks[len(x.Blocks)-1], Blocks: len(x.Blocks), Weights: p.Ranks[i*len(p.Ranks)/replicas/len(p.Stages)].Weights, Shared: x.Shared, Passed: steps(x.Passed)}
		out.Stages = append(out.Stages, s)
	}
	for _, r := range p.Ranks[:len(p.Ranks)/replicas] {
		out.Ranks = append(out.Ranks, rankReport{r.Weights + r.Constants, r.State * z.Batch, r.Cache * z.Batch * (z.Prompt + 1), steps(r.Arena), r.Launches, r.Collectives, r.PeerNorms})
	}
	for _, line := range foldCollectives(p.Collectives) {
		out.Collectives = append(out.Collectives, collectiveReport{line.c.Name, line.times, line.c.Kind, line.c.Along, line.c.Elems.String(), steps(line.c.Bytes)})
	}
	if p.Mesh != (graph.Mesh{}) {
		out.Mesh = p.Mesh.String()
	}
	return out, nil
}

func (r *planReport) print(w io.Writer) {
	if r.Prefill != nil {
		r.Prefill.print(w)
		fmt.Fprintln(w)
	}
	on := ranks(len(r.Ranks))
	if r.Mesh != "" {
		on = fmt.Sprintf("%s (mesh %s)", ranks(r.mesh.Ranks()), r.Mesh)
	}
	fmt.Fprintf(w, "%s on %s; %s\n", r.Model, on, r.stepSizes)
	if n := r.mesh.Along(graph.DP); n > 1 {
		fmt.Fprintf(w, "of %d replicas the first; each has a share of the sequences\n", n)
	}
	if r.phase != "" {
		column := map[string]string{"prefill": "prompt", "decode": "decode"}[r.phase]
		fmt.Fprintf(w, "%s by %s; of the columns prompt and decode only %s is run\n", r.phase, r.Strategy, column)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%4s  %14s  %14s  %14s  %16s  %16s  %8s  %11s\n", "rank", "weights", "state", "cache", "prompt", "decode", "kernels", "collectives")
	for i, x := range r.Ranks {
		fmt.Fprintf(w, "%4d  %14s  %14s  %14s  %16s  %16s  %8d  %11d\n", i, thousands(x.Weights), thousands(x.State), thousands(x.Cache),
			thousands(x.Activations.Prompt), thousands(x.Activations.Decode), x.Kernels, x.Collectives)
	}
	fmt.Fprintln(w, "bytes; kernels and collectives per step, prompt and decode: activations at their peak")
	if r.blocks {
		var list []string
		for _, f := range r.Formats {
			list = append(list, fmt.Sprintf("%s in %s", thousands(f.Bytes), f.Format))
		}
		fmt.Fprintf(w, "weights of all ranks: %s\n", strings.Join(list, ", "))
	}
	r.printStages(w)
	if r.Prefill != nil {
		fmt.Fprintf(w, "beside those of prefill; of the weights, CPUs read %s from the file in place on rank 0, and copy the rest\n", thousands(r.InPlace))
	}
	if n := r.Ranks[0].PeerNorms; n > 0 {
		fmt.Fprintf(w, "%d of the kernels run in the launch of an all_reduce where ranks sum over peer memory\n", n)
	}
	if len(r.Collectives) == 0 {
		return
	}
	width := 34
	for _, x := range r.Collectives {
		width = max(width, len([]rune(x.title())))
	}
	fmt.Fprintf(w, "\n%-*s %-14s %12s %16s %16s\n", width, "collective", "kind", "elements", "prompt", "decode")
	for _, x := range r.Collectives {
		fmt.Fprintf(w, "%-*s %-14s %12s %16s %16s\n", width, x.title(), strings.TrimSpace(x.Kind+" "+x.Along), x.Elements, thousands(x.Payload.Prompt), thousands(x.Payload.Decode))
	}
	fmt.Fprintf(w, "payload in bytes. A rank sends %s bytes for the prompts and %s for a token of each, in rings\n", thousands(r.Sent.Prompt), thousands(r.Sent.Decode))
}

// printStages prints the pipeline stages, if there are several.
func (r *planReport) printStages(w io.Writer) {
	if len(r.Stages) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%5s  %-24s %6s %14s %14s %17s %9s\n", "stage", "blocks", "number", "weights", "shared", "passed on prompt", "decode")
	for _, x := range r.Stages {
		blocks := x.First
		if x.Last != x.First {
			blocks += " to " + x.Last
		}
		fmt.Fprintf(w, "%5d  %-24s %6d %14s %14s %17s %9s\n", x.Stage, blocks, x.Blocks, thousands(x.Weights), thousands(x.Shared), thousands(x.Passed.Prompt), thousands(x.Passed.Decode))
	}
	fmt.Fprintln(w, "bytes of a rank; shared: weights that other stages have, too")
}

func (c collectiveReport) title() string {
	if c.Times == 1 {
		return c.Name
	}
	return fmt.Sprintf("%s (×%d)", c.Name, c.Times)
}

// comparison has the plan of each strategy.
type comparison struct {
	Model string `json:"model"`
	Ranks int    `json:"ranks"`
	stepSizes
	Hardware   string         `json:"hardware"`
	Nodes      int            `json:"nodes,omitempty"` // if several
	Strategies []choiceReport `json:"strategies"`
	about      string
}

type choiceReport struct {
	Strategy    string      `json:"strategy"`
	Error       string      `json:"error,omitempty"` // why it does not apply
	Collectives int         `json:"collectives"`
	Sent        perStep     `json:"sent_bytes_per_rank"`
	Weights     int64       `json:"weight_bytes"`     // of the rank that has most
	Activations perStep     `json:"activation_bytes"` // likewise, at their peak
	Time        stepSeconds `json:"seconds"`
	Travel      stepSeconds `json:"collective_seconds"` // of them, with a collective active
}

type stepSeconds struct {
	Prompt float64 `json:"prompt"`
	Decode float64 `json:"decode"`
}

// comparisonOf plans with every strategy.
func comparisonOf(c *cobra.Command, g *graph.Graph, s krait.Sharding, d *virtual.Device, z stepSizes) (*comparison, error) {
	if g.Stage >= graph.PartitionedStage {
		return nil, errors.New("the graph is partitioned; --compare needs it at an earlier stage")
	}
	out := &comparison{Model: g.Name, Ranks: max(s.Ranks, g.Ranks), stepSizes: z, Hardware: d.Profile.Name, about: d.Profile.About}
	tell, end := terminal.Progress(c.ErrOrStderr(), "simulate", "strategies", false)
	choices, err := interruptible(c, "", func() ([]simulate.Comparison, error) { return simulate.Compare(g, s, d, tell), nil })
	if end(); err != nil {
		return nil, err
	}
	for _, c := range choices {
		r := choiceReport{Strategy: c.Strategy.Name}
		if c.Err != nil {
			r.Error = firstLine(c.Err)
			out.Strategies = append(out.Strategies, r)
			continue
		}
		p, err := planOf(g.Name, c.Model.Plan, z)
		if err != nil {
			return nil, err
		}
		if nodes := c.Model.Nodes(); nodes.Nodes() > 1 {
			out.Nodes = nodes.Nodes()
		}
		r.Collectives, r.Sent = len(c.Model.Plan.Collectives), p.Sent
		for _, x := range p.Ranks {
			r.Weights = max(r.Weights, x.Weights)
			r.Activations.Prompt, r.Activations.Decode = max(r.Activations.Prompt, x.Activations.Prompt), max(r.Activations.Decode, x.Activations.Decode)
		}
		if err := r.steps(c.Model, z); err != nil {
			return nil, err
		}
		out.Strategies = append(out.Strategies, r)
	}
	return out, nil
}

// steps says how long the prompts take in one step, and a token of each after them.
func (r *choiceReport) steps(m *simulate.Model, z stepSizes) error {
	prompt, err := m.Step(int(z.Batch), 0, int(z.Prompt))
	if err != nil {
		return err
	}
	decode, err := m.Step(int(z.Batch), int(z.Prompt), 1)
	r.Time, r.Travel = stepSeconds{prompt.Seconds(), decode.Seconds()}, stepSeconds{prompt.Travelled, decode.Travelled}
	return err
}

func (r *comparison) print(w io.Writer) {
	on := ranks(r.Ranks)
	if r.Nodes > 0 {
		on += ", " + count(r.Nodes, "node")
	}
	fmt.Fprintf(w, "%s on %s; %s\n", r.Model, on, r.stepSizes)
	fmt.Fprintf(w, "%s\n\n", r.about)
	fmt.Fprintf(w, "%-12s  %11s  %14s  %14s  %14s  %14s  %9s  %9s  %9s  %9s\n", "strategy", "collectives", "sent, prefill", "sent, decode", "weights", "activations", "prefill", "of it", "decode", "of it")
	for _, x := range r.Strategies {
		if x.Error != "" {
			fmt.Fprintf(w, "%-12s  does not apply: %v\n", x.Strategy, x.Error)
			continue
		}
		fmt.Fprintf(w, "%-12s  %11d  %14s  %14s  %14s  %14s  %9s  %9s  %9s  %9s\n", x.Strategy, x.Collectives, thousands(x.Sent.Prompt), thousands(x.Sent.Decode),
			thousands(x.Weights), thousands(x.Activations.Prompt), round(seconds(x.Time.Prompt)), round(seconds(x.Travel.Prompt)), round(seconds(x.Time.Decode)), round(seconds(x.Travel.Decode)))
	}
	fmt.Fprintln(w, "bytes that a rank sends in rings; largest weights of a rank, and largest activations of the prefill; time of a step, and of it the time in which a collective is active")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, ":")
}

type collectiveLine struct {
	c     *lowering.CollectivePlan
	times int
}

// foldCollectives writes the collectives of equal blocks once, where the first of them is.
func foldCollectives(list []lowering.CollectivePlan) []collectiveLine {
	blocks := map[string]string{} // what a block has, as text
	var order []string
	for i := range list {
		c := &list[i]
		if _, ok := blocks[c.Block]; !ok && c.Block != "" {
			order = append(order, c.Block)
		}
		blocks[c.Block] += fmt.Sprintf("%s %s %s\n", strings.TrimPrefix(c.Name, c.Block), c.Kind, c.Bytes)
	}
	first, count := map[string]string{}, map[string]int{} // by what a block has
	for _, b := range order {
		first[blocks[b]] = cmp.Or(first[blocks[b]], b)
		count[blocks[b]]++
	}
	var out []collectiveLine
	for i := range list {
		if c := &list[i]; c.Block == "" {
			out = append(out, collectiveLine{c, 1})
		} else if has := blocks[c.Block]; first[has] == c.Block {
			out = append(out, collectiveLine{c, count[has]})
		}
	}
	return out
}

package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/krait-ml/krait/session"
	"github.com/krait-ml/krait/visualize/explain"
	"github.com/krait-ml/krait/visualize/timeline"
	"github.com/spf13/cobra"
)

func newExplain() *cobra.Command {
	e := explainFlags{from: newGraphArg(), search: prove.Options{Memory: 1 << 30}}
	var file string
	var open bool
	c := &cobra.Command{
		Use:   "explain [flags] [DIR | FILE.ir]",
		Short: "Write a page about what the compiler did",
		Long: `Explain compiles a model and writes an HTML page: the graph after every pass beside the one
before, with changes marked; each collective with its reason, bytes and time; each rank's
schedule on a timeline; memory by step; and the proof. The page is one file, needs no network,
and works with mouse or keyboard (? lists the keys). Of a folder only config.json is needed.

Times are predicted for --hw, for a step that prefills --batch prompts of --prompt tokens, and
for a decode step after it. Without DIR it uses the embedded model.

--diff compiles the model twice and compares both on the page. --measured shows the steps of a
run below the predicted ones: a profile in JSON, which generate and bench write with --profile,
of the same model and flags.`,
		Example: `  krait explain --tp 4 -o report.html
  krait explain --like mamba-2.8b --tp 8 --batch 16 --hw h100-nvlink -o report.html
  krait explain testdata/golden/jamba --tp 2 --strategy sequence -o jamba.html
  krait explain --like mamba-2.8b --tp 8 --diff channel,context --open
  krait explain --tp 2 --measured run.json --prompt 16 --open`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error {
			if e.z.Batch < 1 || e.z.Prompt < 1 {
				return fmt.Errorf("--batch %d and --prompt %d: both must be at least 1", e.z.Batch, e.z.Prompt)
			}
			if e.search.Time < 0 {
				return errors.New("--search-time may not be negative")
			}
			if file == "" && !open && onTerminal(c) {
				return errors.New("the page is HTML, and standard output is a terminal: give a file, -o report.html")
			}
			page, err := e.page(c, args)
			if err != nil {
				return err
			}
			if open {
				return show(c, file, "html", page)
			}
			return write(c, file, page)
		},
	}
	shardingFlags(c, &e.s)
	e.from.add(c)
	fileFlag(c, &file)
	e.hw.add(c)
	diffFlag(c, &e.diff)
	c.Flags().StringVar(&e.measured, "measured", "", "profile of a run (--profile FILE.json) to show below the prediction")
	c.Flags().BoolVar(&open, "open", false, "show the page in the browser; without -o it is a temporary file")
	c.Flags().Int64Var(&e.z.Batch, "batch", 1, "sequences")
	c.Flags().Int64Var(&e.z.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().BoolVar(&e.execute, "execute", false, "also run each block in float64 and compare, as krait prove does")
	c.Flags().DurationVar(&e.search.Time, "search-time", 30*time.Second, "time limit of the search for the fewest collectives")
	return c
}

// onTerminal reports whether standard output is a terminal.
func onTerminal(c *cobra.Command) bool { return terminal.Is(standardOutput(c)) }

// explainFlags are the flags of krait explain.
type explainFlags struct {
	s       krait.Sharding
	z       stepSizes
	hw      hardwareFlags
	from    graphArg
	execute bool
	search  prove.Options
	nodes   string // how the ranks lie on nodes
	pipe    string // which blocks are in which pipeline stage

	diff     []string
	measured string
}

func (e *explainFlags) page(c *cobra.Command, args []string) ([]byte, error) {
	hw, err := e.hw.device(hardwareName(c))
	if err != nil {
		return nil, err
	}
	hw.Unlimited = true
	g, path, err := e.from.read(c, args)
	if err != nil {
		return nil, err
	}
	title := e.from.title(path, g)
	var in *explain.Input
	of := func(s krait.Sharding) (*explain.Input, error) { return e.input(c, title, g, s, hw) }
	if e.diff == nil {
		in, err = of(e.s)
	} else {
		var against *explain.Input
		if in, against, _, err = sides(e.diff, e.s, of); err == nil {
			in.Against = against
		}
	}
	if err == nil && e.measured != "" {
		err = e.overlay(c, in.Runs)
	}
	if err != nil {
		return nil, err
	}
	return drawing(c, func(w io.Writer) error { return explain.Page(w, in) })
}

// input compiles, proves and times the model under a sharding.
func (e *explainFlags) input(c *cobra.Command, title string, g *graph.Graph, s krait.Sharding, hw *virtual.Device) (*explain.Input, error) {
	in := &explain.Input{Model: title, Strategy: cmp.Or(s.Place, s.Strategy, "channel")}
	if s.Prefill != "" && s.Phase == passes.Phases[0] {
		in.Strategy = s.Prefill
	}
	var err error
	if in.Stages, err = e.stages(c, g, s); err != nil {
		return nil, err
	}
	fused := in.Stages[len(in.Stages)-1].Graph
	if fused.Ranks == 1 {
		in.Strategy = "one rank"
	}
	if in.Schedules, err = interruptible(c, "lower", func() ([]*lowering.Schedule, error) { return session.Lower(fused, s, 0, nil) }); err != nil {
		return nil, err
	}
	if err := e.proof(c, g, in, s); err != nil {
		return nil, err
	}
	if in.Runs, err = interruptible(c, "simulate", func() ([]explain.Run, error) { return e.runs(in.Schedules, hw) }); err != nil {
		return nil, err
	}
	in.Facts = e.facts(hw.Profile)
	return in, nil
}

// overlay adds the measured steps of a profile to the runs of their size: of several the one of
// median length.
func (e *explainFlags) overlay(c *cobra.Command, runs []explain.Run) error {
	text, err := readBounded(c, e.measured, files.Text)
	if err != nil {
		return err
	}
	run, err := timeline.ReadMeasured(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("--measured %s: %w", e.measured, err)
	}
	found := false
	for i := range runs {
		if step := run.Median(timeline.NameOf(runs[i].Sizes)); step != nil {
			runs[i].Measured, runs[i].MeasuredOn, found = step.Events, run.Name, true
		}
	}
	if !found {
		return fmt.Errorf("--measured %s has no step of %s or %s, which --batch and --prompt ask for; it has %s", e.measured,
			timeline.NameOf(runs[0].Sizes), timeline.NameOf(runs[1].Sizes), strings.Join(run.Kinds(), ", "))
	}
	return nil
}

// nameOf is what a model is called: by its folder, or as its graph says.
func nameOf(path string, g *graph.Graph) string {
	if path == "" || path == "-" {
		return g.Name
	}
	return checkpoint.NameOf(path)
}

// stages compiles the graph, and keeps it after each pass that changed it.
func (e *explainFlags) stages(c *cobra.Command, g *graph.Graph, s krait.Sharding) ([]explain.Stage, error) {
	s, err := resolve(c, s, g)
	if err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	list := []explain.Stage{{Graph: g}}
	dump := o.Dump
	o.Dump = func(step int, pass string, g *graph.Graph) error {
		p := passes.Table[slices.IndexFunc(passes.Table, func(p *passes.Pass) bool { return p.Name == pass })]
		list = append(list, explain.Stage{Pass: pass, Doc: p.Doc, Graph: g})
		if dump != nil {
			return dump(step, pass, g)
		}
		return nil
	}
	_, err = interruptible(c, "compile", func() (*graph.Graph, error) { return passes.Compile(g, o) })
	return list, err
}

// proof adds the certificate of the partitioned graph, or the reason that it has none.
func (e *explainFlags) proof(c *cobra.Command, g *graph.Graph, in *explain.Input, s krait.Sharding) error {
	switch {
	case g.Stage >= graph.PartitionedStage:
		in.Unproved = "The graph came partitioned. krait prove --against SOURCE proves it against the graph that it came from."
		return nil
	case max(s.Ranks, g.Ranks) == 1:
		in.Unproved = "One rank needs no proof. Give --tp for one."
		return nil
	}
	s.Dump = nil
	var p proof
	var err error
	if p.model, p.source, err = beforePartition(c, g, s); err != nil {
		return err
	}
	if p.partitioned, err = compileTo(c, graph.PartitionedStage, p.source, s); err != nil {
		return err
	}
	in.Certificate, err = interruptible(c, "prove", func() (*prove.Certificate, error) { return prove.Prove(p.source, p.partitioned, e.search) })
	if err == nil && e.execute {
		in.Certificate.Execution, err = validate.Run(c.Context(), p.model, p.partitioned, validate.Options{})
	}
	return err
}

// runs are the step of the prompts, and one in which each sequence takes a token, on the
// virtual device.
func (e *explainFlags) runs(all []*lowering.Schedule, hw *virtual.Device) ([]explain.Run, error) {
	plan, err := lowering.NewPlan(all)
	if err != nil {
		return nil, err
	}
	if err := e.z.fits(plan); err != nil {
		return nil, err
	}
	if err := e.hw.spread(hw, len(all)); err != nil {
		return nil, err
	}
	var events []exec.Event
	m, err := virtual.New(all, hw, exec.Setup{Slots: int(e.z.Batch), PageTokens: 128,
		Record: func(step []exec.Event) { events = slices.Clone(step) }})
	if err != nil {
		return nil, err
	}
	wanted, err := lowering.Giver(all).Want(graph.ChosenOutput)
	if err != nil { // a graph that chooses no tokens is for all that it gives
		wanted = slices.Repeat(lowering.OutputMask{true}, len(lowering.Giver(all).Outputs))
	}
	b, p := e.z.Batch, e.z.Prompt
	n := all[0].RowRanks()
	prompt, decode := e.z.on(all[0].RowPlace(), n, e.z.prefill()), e.z.on(all[0].RowPlace(), n, e.z.decode())
	prompt.Cached, prompt.Pairs = b*p, b*(p*(p+1)/2)
	decode.Cached, decode.Pairs = b*(p+1), b*(p+1)
	runs := []explain.Run{
		{Name: "prompt", About: fmt.Sprintf("%s of %s in one step", count(int(b), "prompt"), count(int(p), "token")), Sizes: prompt},
		{Name: "decode", About: fmt.Sprintf("one token in each of %s, after %s", count(int(b), "sequence"), count(int(p), "token")), Sizes: decode},
	}
	e.pipe = stagesText(all)
	m.Arrange(virtual.Steps{Sizes: prompt, Times: 1}, virtual.Steps{Sizes: decode, Times: 63}) // as krait simulate's 64 tokens
	nodes := m.Nodes()
	e.nodes = nodesText(&nodes)
	for i := range runs {
		if _, err := m.Run(runs[i].Sizes, wanted); err != nil {
			return nil, err
		}
		for _, c := range m.Crossings() {
			runs[i].Links = append(runs[i].Links, explain.Link{Axes: c.Axes.In(nodes.Mesh), Level: c.Level.String(), Sent: c.Sent, Seconds: c.Seconds})
		}
		runs[i].Events, runs[i].Clock = events, "predicted for "+hw.Profile.Name
	}
	return runs, nil
}

// stagesText says which blocks and ranks each pipeline stage has, if there are several.
func stagesText(all []*lowering.Schedule) string {
	plan, err := lowering.NewPlan(all)
	if err != nil || plan.Stages == nil {
		return ""
	}
	var list []string
	ranks := len(all) / len(plan.Stages) / all[0].Mesh.Along(graph.DP)
	for i, s := range plan.Stages {
		list = append(list, fmt.Sprintf("%s to %s on ranks %d to %d", s.Blocks[0], s.Blocks[len(s.Blocks)-1], i*ranks, (i+1)*ranks-1))
	}
	return strings.Join(list, "; ")
}

// facts are what the page is of, in words.
func (e *explainFlags) facts(hw *cost.Profile) []explain.Fact {
	facts := []explain.Fact{{Name: "batch", Text: e.z.String()}, {Name: "hardware", Text: hw.Name + ": " + hw.About}}
	if e.nodes != "" {
		facts = append(facts, explain.Fact{Name: "mesh", Text: e.nodes})
	}
	for _, f := range []explain.Fact{{Name: "pipeline stages", Text: e.pipe}, {Name: "payloads", Text: e.s.Payload}, {Name: "states", Text: e.s.States}} {
		if f.Text != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

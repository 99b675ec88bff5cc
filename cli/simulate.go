package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

// simulateFlags say what is simulated.
type simulateFlags struct {
	from                graphArg
	sharding            krait.Sharding
	hardware            hardwareFlags
	work                simulate.Workload
	replicas            simulate.Replicas
	maxBatch, maxPrompt bool
	compare             bool
	traffic             trafficFlags
	out                 output
}

func newSimulate() *cobra.Command {
	f := simulateFlags{from: newGraphArg()}
	c := &cobra.Command{
		Use:   "simulate [flags] [DIR | FILE.ir]",
		Short: "Predict latency, throughput and memory on hardware",
		Long: `Simulate runs the schedules of all ranks on a virtual device that keeps time and no data, and
predicts a deployment: time to first token (TTFT), time per output token (TPOT), tokens per
second, memory per rank, the largest batch and the longest prompt that fit, and the best
strategies for prefill and decode. It needs no weights: a folder with config.json is enough, or
--like with a published size.

Times come from a hardware profile (docs/simulate.md explains its figures), memory from the
schedules and from what the profile leaves to programs.

--strategy auto takes the fastest strategies for prefill and decode; they may differ if both
fit, as each has weights, states and caches of its own (--prefill-strategy). --max-batch and
--max-prompt take the largest that fits in place of --batch and --prompt. --compare tabulates
strategies, ranks, replicas and payloads on the number of devices of --tp and --dp.

With --traffic TRACE, --rate or --concurrency requests come and go, and servers run them as krait
serve and krait route do: TTFT, TPOT, the share of requests within --slo, and throughput.
--decode and --prefill set servers of each role, --compare tabulates the deployments on as many
GPUs, and --find takes the fewest GPUs that meet --slo.

Without DIR it uses the embedded model.`,
		Example: `  krait simulate --like mamba-2.8b --hw a100-nvlink --tp 4 --batch 64 --prompt 1024 --tokens 256
  krait simulate ~/models/jamba --hw h100-nvlink --tp 8 --math bf16 --compare
  krait simulate --like mamba2-2.7b --tp 4 --strategy auto --max-batch
  krait simulate --like mamba-2.8b --tp 4 --slow-rank 2:1.5
  krait simulate --like bamba-9b --tp 2 --dp 4 --rate 1,2,4,8 --compare --slo ttft=1s,tpot=50ms`,
		Args: takes(0, 1, "one DIR or FILE.ir"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.from.add(c)
	f.from.addDType(c)
	f.out.add(c)
	shardingFlags(c, &f.sharding)
	f.hardware.add(c)
	c.Flags().IntVar(&f.work.Batch, "batch", 1, "sequences")
	c.Flags().IntVar(&f.work.Prompt, "prompt", 512, "tokens of each prompt")
	c.Flags().IntVarP(&f.work.Output, "tokens", "n", 64, "tokens to generate per sequence")
	c.Flags().IntVar(&f.work.Chunk, "chunk", 512, "prompt tokens per prefill step and sequence; 0: all")
	c.Flags().IntVar(&f.work.Drafts.Number, "drafts", 0, "drafts of speculative decoding, per sequence and decode step")
	c.Flags().Float64Var(&f.work.Drafts.Acceptance, "acceptance", 0.7, "probability that a draft is right after right ones, with --drafts")
	c.Flags().IntVar(&f.replicas.Number, "dp", 1, "data-parallel replicas that share the batch, each on --tp ranks")
	c.Flags().Float64Var(&f.replicas.Efficiency, "dp-efficiency", 1, "a replica's throughput beside others, as a share of its throughput alone")
	c.Flags().BoolVar(&f.maxBatch, "max-batch", false, "use the largest batch that fits")
	c.Flags().BoolVar(&f.maxPrompt, "max-prompt", false, "use the longest prompt that fits")
	c.Flags().BoolVar(&f.compare, "compare", false, "compare strategies, ranks, replicas and payloads")
	expert(c, "chunk", "dp-efficiency", "slow-rank", "slow-link")
	f.traffic.add(c)
	c.AddCommand(newSimulateCache(), newSimulateTrace(), newSimulateTransfer())
	return c
}

// run answers.
func (f *simulateFlags) run(c *cobra.Command, args []string) error {
	comes, err := f.traffic.given(c)
	if err != nil {
		return err
	}
	if err := f.check(c); err != nil {
		return err
	}
	d, err := f.hardware.device(hardwareName(c))
	if err != nil {
		return err
	}
	g, _, err := f.from.read(c, args)
	if err != nil {
		return err
	}
	if check := f.sharding.Check; check != nil && g.Stage == graph.ModelStage {
		if err := check(g, nil); err != nil {
			return err
		}
	}
	title := cmp.Or(f.from.like, g.Name)
	if comes && f.hardware.nodes != 0 {
		return errors.New("--nodes is for one batch; servers of requests that come and go fill nodes of --hw: leave out --nodes")
	}
	if err := f.hardware.spread(d, worldRanks(&f.sharding, g)*f.replicas.Number); err != nil {
		return err
	}
	if comes {
		return f.runTraffic(c, g, d, title)
	}
	if f.compare {
		tell, end := terminal.Progress(c.ErrOrStderr(), "simulate", "deployments", false)
		r, err := interruptible(c, "", func() (*deployments, error) { return f.deployments(g, d, tell) })
		end()
		if err != nil {
			return err
		}
		r.Model = title
		return f.out.print(c, r, r.print)
	}
	tell, end := terminal.Progress(c.ErrOrStderr(), "simulate", "strategies", false)
	r, err := interruptible(c, "", func() (*simulation, error) { return f.simulate(g, d, tell) })
	end()
	if err != nil {
		return err
	}
	r.Model = title
	return f.out.print(c, r, r.print)
}

func (f *simulateFlags) check(c *cobra.Command) error {
	least := min(f.work.Batch, f.work.Prompt, f.work.Output)
	switch {
	case least < 1 || f.work.Chunk < 0:
		return fmt.Errorf("--batch %d, --prompt %d, --tokens %d, --chunk %d: all must be at least 1; --chunk may be 0", f.work.Batch, f.work.Prompt, f.work.Output, f.work.Chunk)
	case f.replicas.Number < 1 || f.replicas.Efficiency == 0:
		return fmt.Errorf("--dp %d and --dp-efficiency %g: --dp must be at least 1, --dp-efficiency above 0", f.replicas.Number, f.replicas.Efficiency)
	case f.maxBatch && f.maxPrompt:
		return errors.New("--max-batch and --max-prompt: each depends on the other; give one of them")
	case f.maxBatch && c.Flags().Changed("batch"), f.maxPrompt && c.Flags().Changed("prompt"):
		return errors.New("--max-batch replaces --batch, and --max-prompt replaces --prompt; leave out one")
	case f.compare && (f.sharding.Strategy != "" || f.sharding.Prefill != "" || f.sharding.Place != "" || f.sharding.Payload != ""):
		return errors.New("--compare tries every strategy and payload; leave out --strategy, --prefill-strategy, --place and --payload")
	case f.sharding.Strategy == passes.Auto && f.sharding.Place != "":
		return errors.New("--strategy auto and --place exclude each other: give one of them")
	}
	if c.Flags().Changed("acceptance") && f.work.Drafts.Number == 0 {
		return errors.New("--acceptance is that of drafts: give their number per step by --drafts")
	}
	return f.replicas.Check()
}

// options are those of the compiler, without a strategy that is chosen by cost.
func (f *simulateFlags) options(ranks int) (passes.Options, error) {
	s := f.sharding
	if s.Ranks = ranks; s.Strategy == passes.Auto {
		s.Strategy = ""
	}
	if p, ok := s.ForPrefill(); ok && s.Strategy != passes.Auto {
		return p.Options()
	}
	if passes.ByPhase(s.Payload) {
		s.Phase = cmp.Or(s.Phase, passes.Phases[0])
	}
	return s.Options()
}

// decoding is the model by which tokens follow, where they have payloads of their own; else nil.
func (f *simulateFlags) decoding(g *graph.Graph, d *virtual.Device) (*simulate.Model, error) {
	if _, two := f.sharding.ForPrefill(); f.sharding.Prefill != "" && !two {
		return nil, nil // on one rank
	}
	switch {
	case f.sharding.Prefill == "" && (!passes.ByPhase(f.sharding.Payload) || f.sharding.Phase != ""):
		return nil, nil
	case f.sharding.Strategy == passes.Auto || f.sharding.Prefill == passes.Auto:
		if f.sharding.Prefill != "" {
			return nil, errors.New("--strategy auto chooses both phases; leave out --prefill-strategy, or name both strategies")
		}
		return nil, errors.New("--strategy auto does not take payloads by phase: choose the strategy first, without --payload")
	}
	of := *f
	of.sharding.Prefill, of.sharding.Phase = "", passes.Phases[1]
	o, err := of.options(f.sharding.Ranks)
	if err != nil {
		return nil, err
	}
	return simulate.Compile(g, o, d)
}

// simulation is the answer for one deployment.
type simulation struct {
	Model    string `json:"model"`
	Hardware string `json:"hardware"`
	Ranks    int    `json:"ranks"`
	Replicas int    `json:"replicas"`
	Nodes    int    `json:"nodes"`              // of a replica
	Arranged string `json:"arranged,omitempty"` // which axes of the mesh go within nodes
	NodeOf   []int  `json:"node_of_rank,omitempty"`
	Strategy string `json:"strategy"` // of prefill, and of decode if that is the same
	Decode   string `json:"decode_strategy,omitempty"`
	Batch    int    `json:"batch"`
	Prompt   int    `json:"prompt_tokens"`
	Output   int    `json:"output_tokens"`
	Chunk    int    `json:"chunk_tokens"`
	*simulate.Result
	Usable    int64 `json:"usable_bytes_per_rank"`
	MaxBatch  int   `json:"max_batch"`  // of all replicas
	MaxPrompt int   `json:"max_prompt"` // -1: any
	// Best is which strategies are best; nil: the graph has one already.
	Best    *simulate.Choice `json:"best,omitempty"`
	Without []string         `json:"strategies_left_out,omitempty"` // each with the reason
	about   string
}

func (f *simulateFlags) simulate(g *graph.Graph, d *virtual.Device, tell func(done, all int)) (*simulation, error) {
	o, err := f.options(f.sharding.Ranks)
	if err != nil {
		return nil, err
	}
	m, err := simulate.Compile(g, o, d)
	if err != nil {
		return nil, err
	}
	decode, err := f.decoding(g, d)
	if err != nil {
		return nil, err
	}
	if decode != nil && f.sharding.Prefill != "" { // in one engine
		m = m.Beside(decode)
	}
	w, err := f.workload(m)
	if err != nil {
		return nil, err
	}
	part := f.replicas.Each(w)
	r := &simulation{Hardware: d.Profile.Name, Ranks: len(m.Plan.Ranks), Replicas: f.replicas.Number, Strategy: f.strategy(),
		Batch: w.Batch, Prompt: w.Prompt, Output: w.Output, Chunk: w.Chunk, Usable: d.Profile.Usable(len(m.Plan.Ranks)), about: d.Profile.About}
	if g.Stage < graph.PartitionedStage && f.sharding.Place == "" && decode == nil {
		if r.Best, err = simulate.Choose(g, o, d, part, tell); err != nil && f.sharding.Strategy == passes.Auto {
			return nil, err
		}
	} else if f.sharding.Strategy == passes.Auto {
		return nil, errors.New("the graph is partitioned; --strategy auto needs it at an earlier stage")
	}
	if r.Best != nil {
		r.Without = leftOut(r.Best)
	}
	one, m, err := f.result(r, m, decode, part)
	if err != nil {
		return nil, err
	}
	r.Result = f.replicas.All(w, one)
	nodes := m.Nodes()
	if r.Nodes = nodes.Nodes(); r.Nodes > 1 {
		r.Arranged = nodesText(&nodes)
		for rank := range nodes.Mesh.Ranks() {
			r.NodeOf = append(r.NodeOf, nodes.Node(rank))
		}
	}
	if r.MaxBatch, r.MaxPrompt, err = f.most(m, part); err != nil {
		return nil, err
	}
	return r, nil
}

// workload is what is asked for, or the most that fits.
func (f *simulateFlags) workload(m *simulate.Model) (simulate.Workload, error) {
	w := f.work
	if !f.maxBatch && !f.maxPrompt {
		return w, nil
	}
	part := f.replicas.Each(w)
	batch, prompt, err := f.most(m, part)
	switch {
	case err != nil:
		return w, err
	case f.maxBatch && batch > 0 && batch != anyNumber:
		w.Batch = batch
	case f.maxPrompt && prompt > 0:
		w.Prompt = prompt
	case f.maxPrompt && prompt == anyNumber, f.maxBatch && batch == anyNumber:
		return w, errors.New("any size fits, so there is no largest: give --batch or --prompt")
	default: // the error says what a single one needs
		w.Batch, w.Prompt = f.replicas.Number, 1
		if f.maxPrompt {
			w.Batch = f.work.Batch
		} else {
			w.Prompt = f.work.Prompt
		}
	}
	return w, nil
}

// anyNumber stands for no limit.
const anyNumber = -1

// most is the largest batch of all replicas and the longest prompt that fit.
func (f *simulateFlags) most(m *simulate.Model, part simulate.Workload) (batch, prompt int, err error) {
	if batch, err = m.MaxBatch(part); err != nil {
		return 0, 0, err
	}
	if prompt, err = m.MaxPrompt(part); err != nil {
		return 0, 0, err
	}
	if batch == simulate.AnyNumber {
		batch = anyNumber
	} else {
		batch *= f.replicas.Number
	}
	if prompt == simulate.AnyNumber {
		prompt = anyNumber
	}
	return batch, prompt, nil
}

// result is that of the strategy that is asked for, or of the best, with its model.
func (f *simulateFlags) result(r *simulation, m, decode *simulate.Model, part simulate.Workload) (*simulate.Result, *simulate.Model, error) {
	if decode != nil {
		run := simulate.RunApart
		if f.sharding.Prefill != "" {
			run, r.Strategy, r.Decode = simulate.RunBoth, f.sharding.Prefill, f.strategy()
		}
		one, err := run(m, decode, part)
		return one, m, err
	}
	if f.sharding.Strategy != passes.Auto {
		one, err := m.Run(part)
		return one, m, err
	}
	r.Strategy = r.Best.Plan.Prefill
	if r.Best.Plan.Decode != r.Strategy {
		r.Decode = r.Best.Plan.Decode
	}
	of := r.Best.Candidate(r.Strategy).Model
	if r.Decode != "" {
		of = of.Beside(r.Best.Candidate(r.Decode).Model)
	}
	return r.Best.Result(), of, nil
}

func (f *simulateFlags) strategy() string {
	return cmp.Or(f.sharding.Strategy, f.sharding.Place, passes.Strategies[0].Name)
}

// leftOut says of strategies that have no result why.
func leftOut(c *simulate.Choice) []string {
	var out []string
	for _, x := range c.Candidates {
		if x.Err != nil {
			out = append(out, x.Strategy+": "+firstLine(x.Err))
		}
	}
	return out
}

func (r *simulation) print(w io.Writer) {
	by := r.Strategy
	if r.Decode != "" {
		by += " for prefill and " + r.Decode + " for decode"
	}
	fmt.Fprintf(w, "%s by %s on %s", r.Model, by, ranks(r.Ranks))
	if r.Replicas > 1 {
		fmt.Fprintf(w, " each of %s", count(r.Replicas, "replica"))
	}
	if r.Nodes > 1 {
		fmt.Fprintf(w, ", %s", r.Arranged)
	}
	fmt.Fprintf(w, "; %s\n%s of %s", r.about, count(r.Batch, "sequence"), count(r.Prompt, "token"))
	if r.Chunk > 0 && r.Chunk < r.Prompt {
		fmt.Fprintf(w, " in chunks of %d", r.Chunk)
	}
	fmt.Fprintf(w, ", and %s of output each\n\n", count(r.Output, "token"))
	fmt.Fprintf(w, "%-8s %12s %7s %16s %12s %6s\n", "", "time", "steps", "in collectives", "exposed", "busy")
	printPhase(w, "prefill", &r.Result.Prefill)
	printPhase(w, "decode", &r.Result.Decode)
	fmt.Fprintf(w, "\nTTFT %s, TPOT %s, %.1f tokens/s\n\n", round(seconds(r.TTFT)), round(seconds(r.TPOT)), r.Throughput)
	if x := r.Speculation; x != nil {
		fmt.Fprintf(w, "%s per step, %g%% right: %.2f tokens per step; without, TPOT is %s, %.2f times as long\n\n", count(x.Number, "draft"), 100*x.Acceptance, x.Tokens, round(seconds(x.Without)), x.Gain)
	}
	r.printStages(w)
	r.printLinks(w)
	r.printMemory(w)
	r.printBest(w)
}

// printStages prints the time of pipeline stages, if there are several.
func (r *simulation) printStages(w io.Writer) {
	if len(r.Result.Prefill.Stages) == 0 {
		return
	}
	fmt.Fprintf(w, "%5s  %14s %14s  %14s %14s\n", "stage", "prefill busy", "bubble", "decode busy", "bubble")
	for i, x := range r.Result.Prefill.Stages {
		y := simulate.Stage{}
		if i < len(r.Result.Decode.Stages) {
			y = r.Result.Decode.Stages[i]
		}
		fmt.Fprintf(w, "%5d  %14s %14s  %14s %14s\n", i, round(seconds(x.Busy)), round(seconds(x.Bubble)), round(seconds(y.Busy)), round(seconds(y.Bubble)))
	}
	fmt.Fprint(w, "busy: kernels run; bubble: the stage waits for others; of its ranks with most\n\n")
}

// printLinks prints what crosses the links, of ranks on several nodes.
func (r *simulation) printLinks(w io.Writer) {
	if len(r.Links) == 0 {
		return
	}
	fmt.Fprintf(w, "%-8s  %-8s %-14s %16s %12s %6s\n", "step", "axes", "level", "bytes by a rank", "time", "share")
	for _, l := range r.Links {
		fmt.Fprintf(w, "%-8s  %-8s %-14s %16s %12s %5.1f%%\n", l.Phase, l.Axes, l.Level, thousands(int64(l.Sent)), round(seconds(l.Seconds)), 100*l.Share)
	}
	fmt.Fprint(w, "of a step; all of a ring's or tree's time counts between nodes\n\n")
}

func printPhase(w io.Writer, name string, p *simulate.Phase) {
	fmt.Fprintf(w, "%-8s %12s %7d %16s %12s %5.1f%%\n", name, round(seconds(p.Seconds)), p.Steps, round(seconds(p.Collectives)), round(seconds(p.Exposed)), 100*p.Busy)
}

func (r *simulation) printMemory(w io.Writer) {
	fmt.Fprintf(w, "%4s  %15s  %15s  %15s  %15s  %15s\n", "rank", "weights", "state", "cache", "activations", "sum")
	for i, n := range r.Memory {
		fmt.Fprintf(w, "%4d  %15s  %15s  %15s  %15s  %15s\n", i, thousands(n.Weights), thousands(n.State), thousands(n.Cache), thousands(n.Activations), thousands(n.Sum))
	}
	fmt.Fprintf(w, "bytes, of %s that a rank has. Largest batch of such prompts: %s; longest prompt of such a batch: %s\n", thousands(r.Usable), orAny(r.MaxBatch), orAny(r.MaxPrompt))
}

func orAny(n int) string {
	if n == anyNumber {
		return "any"
	}
	return thousands(int64(n))
}

func (r *simulation) printBest(w io.Writer) {
	if r.Best == nil || r.Ranks == 1 {
		return
	}
	fmt.Fprintf(w, "\nbest for prefill: %s\nbest for decode:  %s\n", bestText(&r.Best.Prefill), bestText(&r.Best.Decode))
	if p := r.Best.Plan; r.Best.Refused != "" {
		fmt.Fprintf(w, "not together: %s\nbest together: %s", r.Best.Refused, p.Prefill)
		if p.Decode != p.Prefill {
			fmt.Fprintf(w, " for prefill, %s for decode", p.Decode)
		}
		fmt.Fprintf(w, ", %s for all\n", round(seconds(p.Seconds)))
	}
	for _, line := range r.Without {
		fmt.Fprintln(w, "without", line)
	}
}

func bestText(b *simulate.Best) string {
	text := fmt.Sprintf("%s, %s", b.Strategy, round(seconds(b.Seconds)))
	switch {
	case b.RunnerUp == "":
		return text
	case b.Margin == 0:
		return text + "; " + b.RunnerUp + " takes as long"
	}
	return text + fmt.Sprintf("; %s takes %.2g%% longer", b.RunnerUp, 100*b.Margin)
}

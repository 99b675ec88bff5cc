package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

// shardingFlags adds the flags of commands that shard a model.
func shardingFlags(c *cobra.Command, s *krait.Sharding) {
	var names []string
	var payload payloadFlags
	var dump, mesh string
	for _, x := range passes.Strategies {
		names = append(names, x.Name)
	}
	c.PreRunE = func(*cobra.Command, []string) error {
		if c.Flags().Changed("tp") && s.Ranks < 1 {
			return fmt.Errorf("--tp is %d; it must be from 1 to %d", s.Ranks, passes.MaxRanks)
		}
		if err := onMesh(s, mesh); err != nil {
			return err
		}
		if err := cmp.Or(phaseUsed(c, s), payload.choose(c, s)); err != nil {
			return err
		}
		if hw := hardwareName(c); s.Strategy == passes.Auto || s.Prefill == passes.Auto || hw != "" {
			s.Choose = func(g *graph.Graph, o passes.Options, phase string) (string, error) {
				tell, end := terminal.Progress(c.ErrOrStderr(), "choose a strategy", "strategies", isQuiet(c))
				defer end()
				return simulate.Auto(hw, simulate.Workload{}, tell)(g, o, phase)
			}
		}
		if dump != "" {
			s.Dump = visualize.DumpTo(dump)
		}
		if f := c.Flags().Lookup("validate"); f != nil && f.Value.String() == "true" {
			s.Validate = validate.Check
		}
		return s.ReadPlace()
	}
	payload.add(c)
	tpHelp := "tensor-parallel ranks (default 1)"
	if strings.Contains(c.Use, "FILE.ir") {
		tpHelp = "tensor-parallel ranks (default 1, or those of FILE.ir)"
	}
	c.Flags().IntVar(&s.Ranks, "tp", 0, tpHelp)
	c.Flags().StringVar(&mesh, "mesh", "", "ranks along several axes, such as tp=4,cp=2 (default: along tp)")
	c.Flags().StringVar(&s.StagesAt, "stages", "", "blocks at which pipeline stages after the first begin, such as 10,20")
	c.Flags().StringVar(&s.Strategy, "strategy", "", "sharding strategy, or auto: the fastest on --hw (default channel)")
	c.Flags().StringVar(&s.Prefill, "prefill-strategy", "", "strategy of prefill, or auto (default: that of --strategy)")
	c.Flags().String("hw", "", "hardware profile for --strategy auto: a name or a file")
	c.Flags().StringVar(&s.Place, "place", "", "placement file, in place of --strategy")
	c.Flags().StringVar(&s.Payload, "payload", "", "format of collective payloads, such as fp16 or int8/64 (default f32)")
	c.Flags().StringVar(&s.Phase, "phase", "", "phase whose --payload formats apply: prefill or decode")
	c.Flags().StringVar(&s.States, "states", "", "formats of states by kind, such as conv=bf16,cache=e4m3 (default f32)")
	c.Flags().StringVar(&s.Scan, "scan", "", "selective scans: fused, or unfused with intermediates in memory (default fused)")
	c.Flags().StringVar(&s.Fuse, "fuse", "", "fusion: exact, or launches for the fewest launches (default: by device)")
	c.Flags().Var(formatsFlag{s}, "formats", "activation formats as on GPUs: bf16 (--math bf16) or pieces (default: by device)")
	c.Flags().BoolVar(&s.Overlap, "overlap", false, "overlap collectives with independent steps (may need more memory)")
	c.Flags().StringVar(&dump, "dump", "", "folder to write the graph to after each pass that changes it")
	detail(c, "mesh", `in place of --tp: tp is tensor parallelism by --strategy, cp context parallelism (the tokens of a
prompt in parts), pp pipeline stages, dp replicas. Ranks are numbered along tp first.`)
	detail(c, "stages", "in place of a cut by cost, into the stages of --mesh pp=N.")
	detail(c, "strategy", "one of "+strings.Join(names, ", ")+", or auto, which takes the fastest on --hw.")
	detail(c, "prefill-strategy", `such as context, beside --strategy channel: prompts run by the one, decode by the other. Each has
its own copies of weights, states and KV caches, but weights that the CPU reads from the file in place.`)
	detail(c, "hw", "one of "+strings.Join(cost.Names(), ", ")+", "+cost.Local+" (which krait calibrate measures), or a file.")
	detail(c, "place", "a pipe, such as <(command), must end within 10 seconds.")
	detail(c, "payload", `fp16, bf16, scaled16, int8, e4m3, e5m2 or int4; with a block size as int8/64; for partial sums
and sums as int4:int8; by site as x_proj=none,out_proj=fp16:acc32, where out_proj.rs is the
reduce-scatter and in_proj.ag the all-gather; for one phase as int8@decode. auto chooses by
--calibration and --budget.`)
	detail(c, "phase", "serve prefill, serve decode and generate --prefill set it, simulate runs both phases; other commands need it\nif --payload has formats for one phase. With --prefill-strategy, graph, explain and prove show that phase.")
	detail(c, "states", "ssm is f32 or bf16.")
	detail(c, "scan", "unfused scans write tensors of [tokens, channels, states] to memory.")
	detail(c, "fuse", "exact changes no bit of the result; launches also fuses where that saves only launches. The default without a device is exact.")
	expert(c, "budget", "calibration", "hw", "mesh", "place", "phase", "prefill-strategy", "stages", "scan", "fuse", "formats", "overlap", "dump")
}

// onMesh sets the ranks of --mesh.
func onMesh(s *krait.Sharding, text string) error {
	if text == "" {
		return nil
	}
	m, err := graph.ParseMesh(text)
	if err != nil {
		return err
	}
	return s.OnMesh(m)
}

// hardwareName returns --hw.
func hardwareName(c *cobra.Command) string { return c.Flags().Lookup("hw").Value.String() }

// phaseAlone annotates the --phase of commands that use it with any payload.
const phaseAlone = "alone"

// phaseUsed returns an error if --phase changes nothing. The payload that auto chooses has one
// phase.
func phaseUsed(c *cobra.Command, s *krait.Sharding) error {
	flag := c.Flags().Lookup("phase")
	if _, alone := flag.Annotations[phaseAlone]; alone || !flag.Changed || s.Payload == passes.Auto || s.Prefill != "" || passes.ByPhase(s.Payload) {
		return nil
	}
	return fmt.Errorf("--phase %s changes nothing: --payload has no format for one phase; leave --phase out, or give --payload int8@decode", s.Phase)
}

// resolve replaces the strategies auto of a sharding.
func resolve(c *cobra.Command, s krait.Sharding, g *graph.Graph) (krait.Sharding, error) {
	return interruptible(c, "", func() (krait.Sharding, error) { return s.Resolve(g) }) // Choose shows progress
}

// compileTo compiles a graph up to a stage; NoStage is what runs.
func compileTo(c *cobra.Command, stop graph.Stage, g *graph.Graph, s krait.Sharding) (*graph.Graph, error) {
	s, err := resolve(c, s, g)
	if err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	o.Stop = stop
	return interruptible(c, "compile", func() (*graph.Graph, error) { return passes.Compile(g, o) })
}

// runningFlags adds the flags of commands that run a model on ranks.
func runningFlags(c *cobra.Command, s *krait.Sharding) {
	c.Flags().Bool("validate", false, "first run each block in float64 and compare ranks, as krait prove does")
	c.Flags().BoolVar(&s.CheckPayloads, "check-payloads", false, "fail if a payload overflows its format, and name the collective (slow)")
	detail(c, "check-payloads", "payloads in fp16 must stay in its range, those in a codec must be finite.")
	expert(c, "validate", "check-payloads")
}

// bytesFlag adds a flag for a number of bytes, with the suffix KiB, MiB or GiB, or none.
func bytesFlag(c *cobra.Command, to *int64, name string, value int64, usage string) {
	*to = value
	c.Flags().Var((*byteCount)(to), name, usage)
}

type byteCount int64

var byteUnits = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// Set reads 4GiB.
func (b *byteCount) Set(text string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n > 0) || n*float64(u.size) > 1<<60 {
			break
		}
		*b = byteCount(n * float64(u.size))
		return nil
	}
	return fmt.Errorf("%q is not a number of bytes above 0, such as 512MiB or 4GiB", text)
}

// String writes 4GiB.
func (b *byteCount) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n%u.size == 0 {
			return fmt.Sprint(n/u.size, u.name)
		}
	}
	return ""
}

// Type is what help calls the value.
func (*byteCount) Type() string { return "bytes" }

// bytesOrNone is a number of bytes that may be 0, its default.
type bytesOrNone struct{ byteCount }

// Set reads 4GiB, or 0.
func (b *bytesOrNone) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n == 0 {
		b.byteCount = 0
		return nil
	}
	if b.byteCount.Set(text) != nil {
		return fmt.Errorf("%q is not a number of bytes, such as 512MiB or 4GiB, or 0", text)
	}
	return nil
}

func (b *bytesOrNone) String() string {
	if b.byteCount == 0 {
		return "0"
	}
	return b.byteCount.String()
}

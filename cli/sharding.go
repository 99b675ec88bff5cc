package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/simulate"
	"github.com/krait-ml/krait/lab/validate"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/visualize"
	"github.com/spf13/cobra"
)

// shardingFlags are the flags of every command that lays a model over ranks.
func shardingFlags(c *cobra.Command, s *krait.Sharding) {
	var names []string
	var quant quantFlags
	var dump string
	for _, x := range passes.Strategies {
		names = append(names, x.Name)
	}
	c.PreRunE = func(*cobra.Command, []string) error {
		if c.Flags().Changed("tp") && s.Ranks < 1 {
			return fmt.Errorf("--tp %d: 1 to %d ranks are possible", s.Ranks, passes.MaxRanks)
		}
		if err := cmp.Or(phaseUsed(c, s), quant.choose(c, s)); err != nil {
			return err
		}
		if hw := hardwareName(c); s.Strategy == passes.Auto || hw != "" {
			s.Choose = simulate.Auto(hw, simulate.Workload{})
		}
		if dump != "" {
			s.Dump = visualize.DumpTo(dump)
		}
		if f := c.Flags().Lookup("validate"); f != nil && f.Value.String() == "true" {
			s.Validate = validate.Check
		}
		return s.ReadPlace()
	}
	quant.add(c)
	c.Flags().IntVar(&s.Ranks, "tp", 0, "ranks that share the model, tensor parallel (default 1, or as many as graph text is for)")
	c.Flags().StringVar(&s.Strategy, "strategy", "", "how it lies over the ranks: "+strings.Join(names, ", ")+", or auto: the cheapest on --hw (default channel)")
	c.Flags().String("hw", "", "with --strategy auto: the hardware, "+strings.Join(cost.Names(), ", ")+", "+cost.Local+" (measured by krait calibrate), or a file")
	c.Flags().StringVar(&s.Place, "place", "", "a placement file instead of a strategy; a named pipe, such as <(command), must end within 10 seconds")
	c.Flags().StringVar(&s.Payload, "quantize", "", "what sums travel in: fp16, bf16, scaled16, int8, e4m3, e5m2 or int4, with the size of a block int8/64, for summands and sums int4:int8, or by site x_proj=none,out_proj=fp16:acc32; out_proj.rs where scattered, in_proj.ag what is gathered; int8@decode for one phase; auto: by --calibration and --budget")
	c.Flags().StringVar(&s.Phase, "phase", "", "which phase's payloads, of a --quantize with some for prefill and some for decode (default: by what the process does)")
	c.Flags().StringVar(&s.States, "states", "", "in which formats states are kept, by kind: conv=bf16,cache=f16,ssm=bf16 (default f32; ssm is f32 or bf16)")
	c.Flags().StringVar(&s.Scan, "scan", "", "how selective scans run: fused, or unfused, with tensors of tokens × channels × states in memory (default fused)")
	c.Flags().StringVar(&s.Fuse, "fuse", "", "which neighbours become one operation: exact, where no bit changes, or launches, where that saves launches, too (default: as the device likes, else exact)")
	c.Flags().Var(formatsFlag{s}, "formats", "bf16: activations as GPUs with --math bf16 keep them (default: as the device does)")
	c.Flags().BoolVar(&s.Overlap, "overlap", false, "order steps so that what needs no sum between ranks runs while it travels (may take memory)")
	c.Flags().StringVar(&dump, "dump", "", "write the graph after each pass that changes it to this folder")
}

// hardwareName returns --hw.
func hardwareName(c *cobra.Command) string { return c.Flags().Lookup("hw").Value.String() }

// phaseAlone marks the --phase of commands that look at it whatever travels.
const phaseAlone = "alone"

// phaseUsed is an error where --phase would change nothing. What auto stands for is of one phase.
func phaseUsed(c *cobra.Command, s *krait.Sharding) error {
	flag := c.Flags().Lookup("phase")
	if _, alone := flag.Annotations[phaseAlone]; alone || !flag.Changed || s.Payload == passes.Auto || passes.ByPhase(s.Payload) {
		return nil
	}
	return fmt.Errorf("--phase %s: no payload of --quantize is for one phase, so nothing would change: leave it out, or say what is for a phase, such as --quantize int8@decode", s.Phase)
}

// compile compiles a model's graph, or graph text, up to a stage; NoStage is what runs.
func compile(c *cobra.Command, path string, s krait.Sharding, stop graph.Stage) (*graph.Graph, error) {
	g, err := readGraph(c, path)
	if err != nil {
		return nil, err
	}
	return compileTo(c, stop, g, s)
}

func compileTo(c *cobra.Command, stop graph.Stage, g *graph.Graph, s krait.Sharding) (*graph.Graph, error) {
	s, err := computed(c, func() (krait.Sharding, error) { return s.Resolve(g) })
	if err != nil {
		return nil, err
	}
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	o.Stop = stop
	return computed(c, func() (*graph.Graph, error) { return passes.Compile(g, o) })
}

// runningFlags are the flags of every command that runs a model over ranks.
func runningFlags(c *cobra.Command, s *krait.Sharding) {
	c.Flags().Bool("validate", false, "first run each block in float64 on random numbers, and compare the ranks with one (as krait prove does)")
	c.Flags().BoolVar(&s.CheckPayloads, "check-payloads", false, "fail where a payload leaves the range of fp16, or is not finite in a codec, and name it (takes memory and time)")
}

// bytesFlag takes a number of bytes, with KiB, MiB or GiB behind it or nothing.
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
	return fmt.Errorf("%q is no number of bytes above 0, such as 512MiB or 4GiB", text)
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

// bytesOrNone is a number of bytes that may be 0, and is where it is not given.
type bytesOrNone struct{ byteCount }

// Set reads 4GiB, or 0.
func (b *bytesOrNone) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n == 0 {
		b.byteCount = 0
		return nil
	}
	if b.byteCount.Set(text) != nil {
		return fmt.Errorf("%q is no number of bytes, such as 512MiB or 4GiB, nor 0", text)
	}
	return nil
}

func (b *bytesOrNone) String() string {
	if b.byteCount == 0 {
		return "0"
	}
	return b.byteCount.String()
}

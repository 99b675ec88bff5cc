package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/graph"
	"github.com/spf13/cobra"
)

// defaultHardware is the hardware profile that commands simulate by default.
const defaultHardware = "a100-nvlink"

// hardwareFlags describe simulated hardware.
type hardwareFlags struct {
	math                 string
	noGraphs             bool
	slowRanks, slowLinks []string
	nodes                int
}

// add adds them to those of a sharding, of which --hw is one.
func (f *hardwareFlags) add(c *cobra.Command) {
	ofHardware(c, defaultHardware)
	f.addNodes(c)
	c.Flags().StringVar(&f.math, "math", "", "precision of matrix products: f32, tf32, bf16 or f16 (default f32)")
	c.Flags().BoolVar(&f.noGraphs, "no-graphs", false, "launch kernels one by one, without CUDA graphs")
	c.Flags().StringSliceVar(&f.slowRanks, "slow-rank", nil, "slow down the kernels of a rank: RANK:FACTOR, such as 2:1.5")
	c.Flags().StringSliceVar(&f.slowLinks, "slow-link", nil, "slow down the sends of a rank: RANK:FACTOR, such as 2:1.5")
}

// addNodes adds --nodes.
func (f *hardwareFlags) addNodes(c *cobra.Command) {
	c.Flags().IntVar(&f.nodes, "nodes", 0, "nodes that the ranks divide among (default as many as they fill)")
}

// spread divides ranks among the nodes of a device.
func (f *hardwareFlags) spread(d *virtual.Device, ranks int) (err error) {
	if f.nodes != 0 {
		d.NodeRanks, err = d.Profile.NodeRanks(ranks, f.nodes)
	}
	return err
}

// worldRanks is the number of ranks of all stages and replicas.
func worldRanks(s *krait.Sharding, g *graph.Graph) int {
	return max(1, s.Ranks, g.Ranks) * max(1, s.Stages) * max(1, s.Replicas)
}

// nodesText says how ranks lie on nodes, such as "2 nodes: tp=8 within a node, pp=2 between nodes";
// a rank alone is nothing.
func nodesText(a *cost.Arrangement) string {
	if n := a.Nodes(); n > 1 {
		return count(n, "node") + ": " + a.String()
	}
	return a.String()
}

// ofHardware makes --hw the hardware of a command, with a default, whatever the strategy.
func ofHardware(c *cobra.Command, name string) {
	flag := c.Flags().Lookup("hw")
	flag.Usage, flag.DefValue = "hardware profile: a name or a file", name
	if err := flag.Value.Set(name); err != nil {
		panic("BUG: " + err.Error()) // any text is a name
	}
	basic(c, "hw")
}

// device is the hardware of a name as a device.
func (f *hardwareFlags) device(name string) (*virtual.Device, error) {
	p, err := cost.Find(cmp.Or(name, defaultHardware))
	if err != nil {
		return nil, err
	}
	d := &virtual.Device{Profile: p, Math: f.math, NoGraphs: f.noGraphs}
	if d.SlowRanks, err = slowOnes("slow-rank", f.slowRanks); err == nil {
		d.SlowLinks, err = slowOnes("slow-link", f.slowLinks)
	}
	return d, err
}

// slowOnes reads 2:1.5.
func slowOnes(flag string, list []string) (map[int]float64, error) {
	out := map[int]float64{}
	for _, text := range list {
		rank, factor, _ := strings.Cut(text, ":")
		r, err := strconv.Atoi(rank)
		f, bad := strconv.ParseFloat(factor, 64)
		if _, twice := out[r]; err != nil || bad != nil || r < 0 || !(f > 0) || twice {
			return nil, fmt.Errorf("--%s %q: it must be RANK:FACTOR, with each rank once, such as 2:1.5", flag, text)
		}
		out[r] = f
	}
	return out, nil
}

package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/ptx"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// MeterOptions configure [Meter].
type MeterOptions struct {
	Batch, Prompt int           // sequences, and tokens of each
	Profile       *cost.Profile // hardware to model times for
	Math          kernels.Math
	Sharding      krait.Sharding // of one rank
	NoGraphs      bool
	NoGEMM        bool // use Krait's kernels in place of cuBLAS
	Whole         bool // interpret every block of every launch, without sampling
	// Progress gets the number of steps run; may be nil.
	Progress func(done, all int)

	cheap int64 // launches with fewer instructions are not sampled; 0: cheapInstrs
}

// MeterResult is the counts of a model on the simulated device.
type MeterResult struct {
	Model    string       `json:"model"`
	Hardware string       `json:"hardware"`
	Batch    int          `json:"batch"`
	Prompt   int          `json:"prompt"`
	Math     string       `json:"math"`
	Phases   []MeterPhase `json:"phases"`
	// Compiled is the number of kernels that the driver compiles with an empty cache, Instrs their
	// PTX instructions, and Compiling the modelled seconds.
	Compiled  int     `json:"compiled_kernels"`
	Instrs    int     `json:"compiled_instructions"`
	Compiling float64 `json:"modelled_compile_seconds"`
}

// perInstr is the seconds of ptxas per PTX instruction: docs/cuda.md.
const perInstr = 1e-4

// compiled adds the counts of compiled kernels.
func (m *MeterResult) compiled(list []sim.Compiled) {
	m.Compiled = len(list)
	for _, k := range list {
		m.Instrs += k.Instrs
	}
	m.Compiling = float64(m.Instrs) * perInstr
}

// MeterPhase is a step of prefill or decode.
type MeterPhase struct {
	Phase string `json:"phase"`
	// Launches counts kernels and products; Chain is the longest chain of launches and copies that
	// depend on each other.
	Launches int          `json:"launches"`
	Chain    int          `json:"chain"`
	Layers   []MeterLayer `json:"layers"`
	Traffic
	// Least is a lower bound on bytes: weights once, states in and out, KV caches, ids in, and
	// logits or tokens out. Operands is the bytes if each operation reads and writes its operands
	// once.
	Least    int64         `json:"least_bytes"`
	Operands int64         `json:"operand_bytes"`
	FLOPs    int64         `json:"flops"`
	Over     float64       `json:"bytes_over_least"`
	Kernels  []MeterKernel `json:"kernels"`
	Steps    []MeterStep   `json:"steps"`
	// Modelled is the step's seconds by the profile, and Roofline those of Least or FLOPs. Nothing
	// was measured.
	Modelled float64 `json:"modelled_seconds"`
	Roofline float64 `json:"floor_seconds"`
	Share    float64 `json:"modelled_share_of_floor"`
	// Filled is the share of multiprocessors that waves of blocks fill, weighted by the modelled time
	// of launches; 0: unknown of all. Blocks of libraries are unknown.
	Filled float64 `json:"filled_waves"`
}

// MeterLayer is a group of layers that launch the same kernels.
type MeterLayer struct {
	First    string   `json:"first"`
	Count    int      `json:"count"`
	Launches int      `json:"launches"`
	Bytes    int64    `json:"bytes"`
	Kernels  []string `json:"kernels"`
}

// Traffic is the memory traffic and the instructions of launches.
type Traffic struct {
	// Loaded and Stored count each byte once per launch: caches hold data within a launch, and lose
	// it between launches.
	Loaded int64 `json:"loaded_bytes"`
	Stored int64 `json:"stored_bytes"`
	// Asked is the bytes of all loads and stores of threads.
	Asked int64 `json:"asked_bytes"`
	// Sectors of 32 bytes that warps touched, and the least number for the same bytes.
	Sectors      int64 `json:"sectors"`
	LeastSectors int64 `json:"least_sectors"`
	// Passes of shared memory, and the least number without bank conflicts.
	Passes      int64 `json:"shared_passes"`
	LeastPasses int64 `json:"least_shared_passes"`
	Instrs      int64 `json:"warp_instructions"`
	Matrix      int64 `json:"tensor_flops"`
	TF32        int64 `json:"tf32_flops"`
}

func (t *Traffic) add(c *ptx.Counts) {
	t.Loaded += c.Loads.Distinct
	t.Stored += c.Stores.Distinct
	t.Asked += c.Loads.Bytes + c.Stores.Bytes
	t.Sectors += c.Loads.Sectors + c.Stores.Sectors
	t.LeastSectors += c.Loads.Least + c.Stores.Least
	t.Passes += c.Shared.Passes
	t.LeastPasses += c.Shared.Least
	t.Instrs += c.Instrs
	t.Matrix += c.Matrix
	t.TF32 += c.TF32
}

// Moved returns the bytes loaded and stored.
func (t *Traffic) Moved() int64 { return t.Loaded + t.Stored }

// MeterKernel is all launches of a kernel in a step.
type MeterKernel struct {
	Kernel   string `json:"kernel"`
	Launches int    `json:"launches"`
	Blocks   int64  `json:"blocks"` // of all launches
	Run      int64  `json:"blocks_interpreted"`
	// Waves is the blocks of a launch over multiprocessors, on average; 0: unknown.
	Waves float64 `json:"waves"`
	// Occupancy is the share of a multiprocessor's threads that registers, shared memory and the
	// number of blocks allow; the least of all launches. 0: unknown.
	Occupancy float64 `json:"occupancy"`
	Traffic
	Modelled float64 `json:"modelled_seconds"`
	Bound    string  `json:"bound"` // launch, memory, issue, special, tensor, or blocks (too few, or uneven)
}

// Meter counts the launches and traffic of a prefill and a decode step on the simulated device. The
// graph needs no weights.
func Meter(ctx context.Context, g *graph.Graph, o MeterOptions) (*MeterResult, error) {
	if o.Batch < 1 || o.Prompt < 1 {
		return nil, fmt.Errorf("batch %d, prompt %d: both must be at least 1", o.Batch, o.Prompt)
	}
	if o.Sharding.Ranks > 1 {
		return nil, fmt.Errorf("%d ranks: the meter counts one rank only", o.Sharding.Ranks)
	}
	r, err := newMeterRun(g, o)
	if err != nil {
		return nil, err
	}
	defer r.engine.Close()
	out := &MeterResult{Model: g.Name, Hardware: o.Profile.Name, Batch: o.Batch, Prompt: o.Prompt, Math: map[kernels.Math]string{kernels.F32: "f32", kernels.BF16: "bf16"}[o.Math]}
	phases := KernelOptions{Decode: []int{o.Batch}, Batch: o.Batch, Prompt: o.Prompt}
	for _, p := range phases.phases() {
		x, err := r.phase(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		out.Phases = append(out.Phases, *x)
	}
	out.compiled(r.meter.Compiled)
	return out, nil
}

// cheapInstrs bounds the warp instructions of launches that are never sampled: results of some
// control later launches.
const cheapInstrs = 1 << 22

// newMeterRun opens an engine without weights.
func newMeterRun(g *graph.Graph, o MeterOptions) (*meterRun, error) {
	m := &sim.Meter{Dry: true, Sample: !o.Whole, Cheap: cmp.Or(o.cheap, cheapInstrs)}
	d := &cuda.Device{Driver: sim.New(sim.Options{Memory: 1 << 46, Registers: kernels.Registers, Meter: m, Capability: [2]int{9, 0}}), Math: o.Math, NoGraphs: o.NoGraphs, NoGEMM: o.NoGEMM}
	e, err := krait.NewEngine(g, nil, krait.Options{Sharding: o.Sharding, Device: d, Slots: 2 * o.Batch, Context: o.Prompt + 8})
	if err != nil {
		return nil, err
	}
	m.Noise = true
	return &meterRun{MeterOptions: o, engine: e, meter: m, schedule: e.Schedules()[0]}, nil
}

// meterRun counts the phases of a model.
type meterRun struct {
	MeterOptions
	engine   *exec.Engine
	meter    *sim.Meter
	schedule *lowering.Schedule
	ran      int // steps
}

// phaseSteps is how many steps of a phase run. The last is counted.
const phaseSteps = 2

// phase counts the second step of its kind, which replays a graph if graphs are on.
func (r *meterRun) phase(ctx context.Context, p phase) (*MeterPhase, error) {
	r.meter.Forget()
	chain := 0
	for range phaseSteps {
		if n := len(r.meter.Done); n > 0 {
			chain = r.meter.Done[n-1].Chain
		}
		r.meter.Done = nil
		if r.Progress != nil {
			r.Progress(r.ran, 2*phaseSteps)
		}
		if err := r.step(ctx, p); err != nil {
			return nil, err
		}
		r.ran++
	}
	return r.result(p, chain), nil
}

// step runs a batch of new sequences whose past has undefined contents.
func (r *meterRun) step(ctx context.Context, p phase) error {
	b := exec.Batch{Choices: make([]exec.Choice, p.seqs)}
	vocab := r.vocab()
	for i := range p.seqs {
		slot, err := r.engine.Alloc()
		if err != nil {
			return err
		}
		defer r.engine.Free(slot)
		if p.past > 0 {
			if err := r.engine.SetLen(slot, p.past); err != nil {
				return err
			}
		}
		b.Sequences = append(b.Sequences, exec.Sequence{Slot: slot, Tokens: tokens(p.tokens, vocab, i)})
	}
	_, err := r.engine.Step(ctx, &b)
	if exec.AsChoiceError(err) != nil {
		return nil // the logits are no numbers
	}
	return err
}

// vocab returns the size of the vocabulary: the rows of the embedding table.
func (r *meterRun) vocab() int {
	for i := range r.schedule.Steps {
		if st := &r.schedule.Steps[i]; st.Op != nil && st.Op.Name == "embedding" {
			for _, a := range st.Args {
				if len(a.Type.Dims) == 2 {
					return a.Type.Dims[0].Len()
				}
			}
		}
	}
	return 1
}

var layerName = regexp.MustCompile(`^[^.]+\.\d+\.`)

// tally collects the launches of a step.
type tally struct {
	*MeterPhase
	kernels map[string]*MeterKernel
	layers  map[string]*MeterLayer
	order   []string // of layers
	steps   meterSteps
	known   float64 // seconds of launches whose blocks are known
}

func (r *meterRun) result(p phase, before int) *MeterPhase {
	z := p.sizes()
	out := &MeterPhase{Phase: p.name, Chain: -before}
	t := &tally{out, map[string]*MeterKernel{}, map[string]*MeterLayer{}, nil, meterSteps{}, 0}
	for i := range r.meter.Done {
		d := &r.meter.Done[i]
		out.Chain = max(out.Chain, d.Chain-before)
		if d.Kernel || d.For != "" { // not a copy of inputs or outputs
			took, bound := model(r.Profile, d, p.tokens == 1 && !r.NoGraphs)
			t.add(d, took, bound)
			t.fill(d, took, r.Profile.Multiprocessors.Value)
		}
	}
	for _, name := range t.order {
		out.layer(t.layers[name])
	}
	for _, k := range slices.SortedFunc(maps.Values(t.kernels), func(a, b *MeterKernel) int {
		return cmp.Or(cmp.Compare(b.Modelled, a.Modelled), strings.Compare(a.Kernel, b.Kernel))
	}) {
		if all := r.Profile.Multiprocessors.Value; all > 0 {
			k.Waves = float64(k.Blocks) / float64(k.Launches) / all
		}
		out.Kernels = append(out.Kernels, *k)
	}
	if t.known > 0 {
		out.Filled /= t.known
	}
	out.Steps = t.steps.list(r, z)
	r.bounds(out, &p, z)
	return out
}

// add adds a launch, with its modelled time and bottleneck.
func (t *tally) add(d *sim.Done, took float64, bound string) {
	t.Launches++
	t.Traffic.add(&d.Counts)
	t.Modelled += took
	t.steps.add(d, took)
	k := t.kernels[d.Name]
	if k == nil {
		k = &MeterKernel{Kernel: d.Name}
		t.kernels[d.Name] = k
	}
	k.Launches++
	k.Blocks += d.Blocks
	k.Run += d.Run
	k.add(&d.Counts)
	if share := occupancy(d); k.Launches == 1 || share < k.Occupancy {
		k.Occupancy = share
	}
	k.Modelled += took
	k.Bound = bound
	name := layerName.FindString(d.For)
	if name == "" {
		return
	}
	l := t.layers[name]
	if l == nil {
		l = &MeterLayer{First: strings.TrimSuffix(name, "."), Count: 1}
		t.layers[name] = l
		t.order = append(t.order, name)
	}
	l.Launches++
	l.Bytes += d.Loads.Distinct + d.Stores.Distinct
	l.Kernels = append(l.Kernels, d.Name)
}

// fill adds a launch to Filled, before it is divided by what is known.
func (t *tally) fill(d *sim.Done, took, multiprocessors float64) {
	if d.Blocks > 0 && multiprocessors > 0 {
		few, wave := shares(d.Blocks, multiprocessors)
		t.Filled += took * few * wave
		t.known += took
	}
}

// bounds adds the lower bounds of a step, and its roofline.
func (r *meterRun) bounds(out *MeterPhase, p *phase, z graph.Sizes) {
	list := []*lowering.Schedule{r.schedule}
	out.FLOPs = flops(list, z)
	out.Least = stepBytes(list, 1, p.seqs, p.past)
	for i := range r.schedule.Steps {
		c := &r.schedule.Steps[i].Cost
		out.Operands += c.Read.At(z) + c.Write.At(z)
	}
	for i := range r.schedule.Buffers {
		if b := &r.schedule.Buffers[i]; b.Space == lowering.Input {
			out.Least += r.schedule.Local(b.Type).Bytes().At(z)
		}
	}
	for _, x := range r.schedule.Outputs {
		if x.Name == graph.ChosenOutput {
			out.Least += x.Ref.Type.Bytes().At(z)
		}
	}
	out.Over = float64(out.Moved()) / float64(out.Least)
	out.Roofline = max(float64(out.Least)/bandwidth(r.Profile), float64(out.FLOPs)/max(rateOf(r.Profile, "f32"), rateOf(r.Profile, "bf16")))
	out.Share = out.Roofline / out.Modelled
}

// Limits of a multiprocessor of compute capability 9.0.
const (
	smThreads, smBlocks     = 2048, 32
	smShared, sharedReserve = 228 << 10, 1 << 10 // reserve per block
)

// residentBlocks returns how many blocks of a launch a multiprocessor has room for; 0: unknown. Its
// four parts have room for as many warps each.
func residentBlocks(d *sim.Done) int {
	threads := d.Block[0] * d.Block[1] * d.Block[2]
	if d.Registers == 0 || threads == 0 {
		return 0
	}
	warps := 4 * (ptx.MaxRegisters / ptx.RegistersOf(d.Registers, 4*32))
	return min(smBlocks, smThreads/threads, warps/warpsOf(d), smShared/(d.Shared+sharedReserve))
}

// warpsOf returns the warps of a block.
func warpsOf(d *sim.Done) int { return (d.Block[0]*d.Block[1]*d.Block[2] + 31) / 32 }

// occupancy returns the share of a multiprocessor's threads that a launch can occupy.
func occupancy(d *sim.Done) float64 {
	return float64(residentBlocks(d)*d.Block[0]*d.Block[1]*d.Block[2]) / smThreads
}

// layer adds a layer to its group.
func (p *MeterPhase) layer(l *MeterLayer) {
	for i := range p.Layers {
		if x := &p.Layers[i]; slices.Equal(x.Kernels, l.Kernels) && x.Bytes == l.Bytes {
			x.Count++
			return
		}
	}
	p.Layers = append(p.Layers, *l)
}

package cuda_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// TestDependent: where launches may be dependent those are that come right after a launch; none is
// on an older GPU, whose tensor cores add otherwise, where it is not wanted, in a long prompt, and
// where events are to say when steps ran. Logits of one kind of GPU are the same bits.
func TestDependent(t *testing.T) {
	m := openShallow(t, "mamba2-g4", 1, 2, "channel")
	wanted, less := map[[2]int][]float32{}, goldens.Few(t)
	for _, c := range []struct {
		name    string
		device  cuda.Device
		options sim.Options
		record  bool
		some    bool
	}{
		{name: "8.0"},
		{name: "9.0", options: sim.Options{Capability: [2]int{9, 0}}, some: true},
		{name: "9.0 launch by launch", options: sim.Options{Capability: [2]int{9, 0}}, device: cuda.Device{NoGraphs: true}, some: true},
		{name: "9.0 without", options: sim.Options{Capability: [2]int{9, 0}}, device: cuda.Device{NoDependent: true}},
		{name: "9.0 recorded", options: sim.Options{Capability: [2]int{9, 0}}, record: true},
	} {
		if less && strings.Contains(c.name, "without") {
			continue
		}
		meter := &sim.Meter{}
		c.options.Meter = meter
		c.device.Driver = sim.New(c.options)
		o := exec.Options{Device: &c.device}
		if c.record {
			o.Record = func([]exec.Event) {}
		}
		e, err := exec.New(m.schedules, m.Tensor, o)
		if err != nil {
			t.Fatal(err)
		}
		n, want := few, wanted[c.options.Capability]
		if want != nil && !c.some || less && !c.some {
			n = 3 // until a graph is captured
		}
		got := feed(t, e, n)
		if want == nil {
			wanted[c.options.Capability], want = got, got
		}
		compare(t, c.name, got, want[:len(got)], 0)
		checkDependent(t, c.name, meter, c.some)
		if c.name == "9.0 launch by launch" {
			for _, tokens := range []int{128, 129} {
				meter.Done = nil
				step(t, e, []exec.Sequence{{Slot: 0, Tokens: make([]int, tokens)}})
				checkDependent(t, fmt.Sprintf("%s, %d tokens", c.name, tokens), meter, tokens == 128)
			}
		}
		e.Close()
	}
}

func checkDependent(t *testing.T, name string, meter *sim.Meter, some bool) {
	t.Helper()
	dependent, kernels := 0, 0
	for _, d := range meter.Done {
		if d.Kernel {
			kernels++
		}
		if d.Dependent {
			dependent++
		}
	}
	t.Logf("%s: %d of %d kernels", name, dependent, kernels)
	if kernels == 0 || some != (dependent > kernels/2) || !some && dependent > 0 {
		t.Errorf("%s: %d of %d launches are dependent", name, dependent, kernels)
	}
}

// TestFixedWeights: a schedule in which a launch writes weights is refused, since launches load
// them before those before them have ended.
func TestFixedWeights(t *testing.T) {
	m := openShallow(t, "mamba2-g1", 1, 1, "channel")
	s := m.schedules[0]
	for i := range s.Steps {
		st := &s.Steps[i]
		weight := slices.IndexFunc(st.Args, func(a lowering.Ref) bool { return s.Buffers[a.Buffer].Space == lowering.Param })
		if st.Kind == lowering.Launch && weight >= 0 {
			st.Results[0].Buffer = st.Args[weight].Buffer
			break
		}
	}
	_, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: sim.New(sim.Options{})}})
	if err == nil || !strings.Contains(err.Error(), "is not a view of embeddings.weight") {
		t.Errorf("a launch writes weights: %v", err)
	}
}

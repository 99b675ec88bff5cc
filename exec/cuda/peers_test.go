package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cpu"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/goldens"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// TestPeers: ranks with a GPU each that sum over each other's memory have the bits of ranks which
// share one, in graphs and launch by launch; where payloads are larger than the limit, or not all
// GPUs reach each other, NCCL has them. Whatever runs first, all is ordered.
func TestPeers(t *testing.T) {
	for i, c := range []struct {
		model    string
		ranks    int
		strategy string
		device   cuda.Device
		options  sim.Options
		ours     bool // some are done so
		nccl     bool // and some not
		all      bool // with KRAIT_TEST_ALL only
		ci       bool // in CI: another case has each of its features
	}{
		{model: "mamba-a", ranks: 2, strategy: "channel", ours: true},
		{model: "mamba-b", ranks: 3, strategy: "naive", ours: true, device: cuda.Device{NoGraphs: true}, ci: true},
		{model: "mamba-b", ranks: 3, strategy: "channel", ours: true, options: sim.Options{Capability: [2]int{9, 0}}, ci: true},
		{model: "mamba2-g4", ranks: 4, strategy: "hoisted", ours: true, all: true},
		{model: "mamba-a-bf16", ranks: 2, strategy: "channel", ours: true, device: cuda.Device{Math: kernels.BF16}, ci: true},
		{model: "mamba2-g4", ranks: 8, strategy: "channel", ours: true, ci: true},
		{model: "mamba-b", ranks: 3, strategy: "channel", ours: true, device: cuda.Device{OneShotBytes: 1}},
		{model: "mamba2-g4", ranks: 4, strategy: "hoisted", ours: true, device: cuda.Device{OneShotBytes: 1}, options: sim.Options{Capability: [2]int{9, 0}}, all: true},
		{model: "mamba-b", ranks: 2, strategy: "channel", device: cuda.Device{PeerBytes: -1}, nccl: true, ci: true},
		{model: "mamba-b", ranks: 2, strategy: "channel", options: sim.Options{Peers: func(from, _ int) bool { return from != 1 }}, nccl: true},
	} {
		if c.all && !goldens.All() || c.ci && goldens.Few(t) {
			continue
		}
		t.Run(fmt.Sprint(c.model, c.ranks, c.strategy, c.device.OneShotBytes), func(t *testing.T) {
			t.Parallel()
			o, device := c.options, c.device
			device.Driver = sim.New(o)
			m := openAt(t, golden(t, c.model), c.ranks, c.strategy, &device)
			shared := m.engine(t, &cuda.Device{Math: device.Math, Driver: sim.New(sim.Options{Capability: c.options.Capability})})
			defer shared.Close()
			n := few
			if i == 0 && !goldens.Few(t) || goldens.All() {
				n = len(batches)
			}
			want := feed(t, shared, n)
			o.Devices, o.Seed, o.Ordered = c.ranks, uint64(i), true
			d := sim.New(o)
			mail := &counting{Driver: d}
			device.Driver = mail
			e := m.engine(t, &device)
			tolerance := 0.0
			if c.nccl {
				tolerance = 1e-4
			}
			compare(t, c.model, feed(t, e, n), want, tolerance)
			e.Close()
			if ours, nccl := mail.kernels > 0, mail.reduced > 0; ours != c.ours || nccl != c.nccl {
				t.Errorf("%d kernels of ours and %d calls of NCCL", mail.kernels, mail.reduced)
			}
			marked := slices.ContainsFunc(m.schedules[0].Steps, func(st lowering.Step) bool { return st.Attrs.Text("then") != "" })
			oneShot := c.ranks == 2 || c.device.OneShotBytes != 1
			if norms := mail.norms > 0; norms != (c.ours && marked && oneShot) || marked != (c.strategy == "channel" && c.model != "mamba-b") { // which has a bias before the norm
				t.Errorf("kernels that sum and norm: %d; the pass marked some: %v", mail.norms, marked)
			}
			if leaks := d.Leaks(); len(leaks) > 0 {
				t.Errorf("left behind: %v", leaks)
			}
		})
	}
}

// TestPeersSwitch: what is larger than the limit, by one row, is NCCL's, and the limit itself is
// not.
func TestPeersSwitch(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	one := open(t, "mamba-a", 1, "").engine(t, &cpu.Device{})
	defer one.Close()
	hidden := 0
	for _, st := range m.schedules[0].Steps {
		if st.Kind == lowering.Collective && strings.Contains(st.Name, "out_proj") {
			hidden = st.Results[0].Type.Dims[1].Len()
		}
	}
	most := 4096 / 4 / hidden // rows
	calls := func(rows int) (ours, nccl int64) {
		prompt := make([]int, rows)
		for i := range prompt {
			prompt[i] = i % 50
		}
		d := &counting{Driver: sim.New(sim.Options{Devices: 2, Ordered: true})}
		e := m.engine(t, &cuda.Device{Driver: d, PeerBytes: 4000}) // which is 4096 then
		defer e.Close()
		got := first(t, e, prompt)
		compare(t, fmt.Sprint(rows, " rows"), got, first(t, one, prompt), 3e-4)
		if err := one.Reset(0); err != nil {
			t.Fatal(err)
		}
		return d.kernels, d.reduced
	}
	for rows, none := range map[int]bool{most: true, most + 1: false} {
		if ours, nccl := calls(rows); ours == 0 || none != (nccl == 0) {
			t.Errorf("of %d rows of %d NCCL sums %d, and kernels of ours are %d", rows, hidden, nccl, ours)
		}
	}
}

// TestPeersMissingOrder: without any one of what orders ranks that write into each other's memory,
// in any kernel, one of some seeds gives an error, mostly the first: which rank comes first depends
// on the machine, too.
func TestPeersMissingOrder(t *testing.T) {
	goldens.CI(t)
	wait := [2]string{`setp\.gt\.u32\s+(%p\d+), (%r\d+), -3;`, "setp.ge.u32 $1, $2, 0;"}
	acquire, release := [2]string{`ld\.acquire\.sys`, "ld.relaxed.sys"}, [2]string{`st\.release\.sys`, "st.relaxed.sys"}
	place := [2]string{`and\.b32\s+(%r\d+), (%r\d+), 1;`, "and.b32 $1, $2, 0;"}
	ends := [2]string{`st\.global\.u32\s+\[(%rd\d+)\], (%r\d+);\n(\$L\w+:\n)?\s*ret;`, "$3 ret;"}
	for _, c := range []struct {
		what    string
		change  [2]string
		kernels []string // each in turn; in one shot, and then in two
		two     []string
	}{
		{"nothing", [2]string{"\n", "\n"}, []string{""}, []string{""}},
		{"a wait", wait, []string{"mail_add_f32(", "mail_add_norm("}, []string{"mail_add_f32(", "mail_take"}},
		{"an acquire", acquire, []string{"mail_add_f32(", "mail_add_norm("}, []string{"mail_add_f32(", "mail_take"}},
		{"a release", release, []string{"mail_send"}, []string{"mail_send", "mail_add_f32("}},
		{"a second place for what is sent", place, []string{""}, nil}, // in two shots all have read before anybody sends again
		{"the end of a turn", ends, []string{"mail_add_f32(", "mail_add_norm("}, []string{"mail_take"}},
	} {
		for shots, kernels := range [][]string{c.kernels, c.two} {
			for i, kernel := range kernels {
				if (i > 0 || shots > 0) && goldens.Few(t) {
					continue
				}
				seeds, found, patience := uint64(30), false, time.Second // some wait for ever then
				if c.what == "nothing" {
					seeds, patience = 3, 0
				}
				for seed := uint64(0); seed < seeds && !found; seed++ {
					changed, err := stepsChanged(t, 2+shots, kernel, c.change, seed, patience)
					if changed == 0 {
						t.Fatalf("%s is nowhere in %s", c.what, kernel)
					}
					if found = err != nil; found && c.what == "nothing" {
						t.Errorf("with all of it, %d shots, seed %d: %v", 1+shots, seed, err)
					}
				}
				if !found && c.what != "nothing" {
					t.Errorf("without %s in %s, %d shots: no error", c.what, kernel, 1+shots)
				}
			}
		}
	}
}

// stepsChanged runs steps with a kernel changed, on two ranks in one shot, or on three in two.
func stepsChanged(t *testing.T, ranks int, kernel string, change [2]string, seed uint64, patience time.Duration) (changed int64, err error) {
	m := open(t, "mamba-a", ranks, "channel")
	re := regexp.MustCompile(change[0])
	d := changing{sim.New(sim.Options{Devices: ranks, Seed: seed, Ordered: true, Patience: patience}), func(text string) string {
		if !strings.Contains(text, ".entry "+kernel) {
			return text
		}
		atomic.AddInt64(&changed, int64(len(re.FindAllString(text, -1))))
		return re.ReplaceAllString(text, change[1])
	}}
	e := m.engine(t, &cuda.Device{Driver: d, OneShotBytes: 1})
	defer e.Close()
	for range 3 {
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range batches[:few] {
		if _, err = e.Step(context.Background(), &exec.Batch{Sequences: append([]exec.Sequence(nil), b...)}); err != nil {
			break
		}
	}
	return changed, err
}

// TestPeersFail: whichever GPU is lost, and whenever, the others, which wait for it in kernels, end
// their steps, the error is that of the lost one, and Close returns.
func TestPeersFail(t *testing.T) {
	m := open(t, "mamba-a", 3, "channel")
	every := 11
	if goldens.Few(t) {
		every = 43
	}
	for lose := 20; lose < 140; lose += every {
		e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: 3, LoseDevice: lose, Seed: uint64(lose)})}, Slots: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Alloc(); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err = e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{1}}}}); err != nil {
				break
			}
		}
		if !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), "rank ") {
			t.Errorf("at kernel %d: %v", lose, err)
		}
		e.Close()
	}
}

// TestPeersAllocationFails: whichever allocation finds no memory, ranks with a GPU each give all
// back.
func TestPeersAllocationFails(t *testing.T) {
	m := open(t, "mamba-a", 2, "channel")
	every := 5
	if goldens.Few(t) {
		every = 23
	}
	for fail, done := 1, false; !done; fail += every {
		d := sim.New(sim.Options{Devices: 2, FailAlloc: fail})
		e, err := exec.New(m.schedules, m.Tensor, exec.Options{Device: &cuda.Device{Driver: d}})
		if err == nil {
			if _, err = e.Alloc(); err == nil {
				_, err = e.Step(context.Background(), &exec.Batch{Sequences: []exec.Sequence{{Slot: 0, Tokens: []int{1, 2}}}})
			}
			e.Close()
		}
		if done = err == nil; !done && !errors.Is(err, driver.ErrOutOfMemory) {
			t.Errorf("allocation %d: %v", fail, err)
		}
		if leaks := d.Leaks(); len(leaks) > 0 {
			t.Errorf("allocation %d: left behind: %v", fail, leaks)
		}
	}
}

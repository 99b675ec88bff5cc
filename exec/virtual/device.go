// Package virtual is a device that simulates time and has no data: it runs the schedules of all
// ranks, and computes when each step begins and ends on the hardware of a profile. Overlap, waiting
// and the cost of a slow rank follow from the streams and events of the schedules.
package virtual

import (
	"fmt"
	"math"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/lowering"
)

// Device simulates the time of hardware, for [exec.Options] and [New].
type Device struct {
	Profile *cost.Profile
	Math    string // the number format of products, of [cost.Profile.Formats]; empty: f32
	// NoGraphs launches kernels one by one also where a captured graph would do, which
	// is in steps of one token for each sequence.
	NoGraphs bool
	// SlowRanks and SlowLinks are factors of the time that a rank takes for its kernels, and to
	// send.
	SlowRanks, SlowLinks map[int]float64
	// NodeRanks is the number of ranks on a node; 0: a full node of the profile, or all ranks if it
	// has no network.
	NodeRanks int
	// Unlimited ignores the memory size of the profile.
	Unlimited bool
}

// Open makes a machine, of all ranks: they wait for each other on the machine's clock.
// Open returns an error if the ranks do not fit into the memory of the profile.
func (d *Device) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	if world.Ranks() != len(local) {
		return nil, fmt.Errorf("%d of %d ranks: a virtual device has all of them, and cannot wait for others", len(local), world.Ranks())
	}
	return d.open(local, o)
}

// Pipelines says that ranks may be in stages and replicas.
func (d *Device) Pipelines() {}

// Memory is that of the profile, unless it is ignored.
func (d *Device) Memory(ranks int) (bytes int64, share int) {
	if d.Unlimited {
		return 0, 1
	}
	return d.Profile.Usable(ranks), 1
}

// New makes a machine for the schedules of all ranks, for [Machine.Run]. It does not check the
// offsets of tensors, as an engine does.
func New(schedules []*lowering.Schedule, d *Device, o exec.Setup) (*Machine, error) {
	if err := lowering.Numbered(schedules); err != nil {
		return nil, err
	}
	return d.open(schedules, o)
}

func (d *Device) open(list []*lowering.Schedule, o exec.Setup) (*Machine, error) {
	if d.Profile == nil {
		return nil, fmt.Errorf("a virtual device has no profile of hardware; cost.Find has some")
	}
	for what, slow := range map[string]map[int]float64{"rank": d.SlowRanks, "link of rank": d.SlowLinks} {
		for r, f := range slow {
			if r < 0 || r >= len(list) {
				return nil, fmt.Errorf("slow %s %d: the rank must be from 0 to %d", what, r, len(list)-1)
			}
			if !(f > 0) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("a slow %s %d: it takes %g times as long; a number above 0 is possible", what, r, f)
			}
		}
	}
	rater, err := d.Profile.Rater(len(list), d.Math)
	if err != nil {
		return nil, err
	}
	m := &Machine{d: d, record: o.Record, slots: int64(o.Slots), trials: int64(o.Trials), pageTokens: int64(o.PageTokens), microbatches: exec.NewMicrobatches(list)}
	if m.plan, err = lowering.NewPlan(list); err != nil {
		return nil, err
	}
	nodes := d.Profile.Arranged(meshOf(list[0]), d.NodeRanks)
	if nodes.Nodes() > 1 && d.Profile.Network == nil {
		return nil, fmt.Errorf("%d ranks with %d on a node: profile %s has no network between nodes", len(list), d.NodeRanks, d.Profile.Name)
	}
	m.clock = newClock(list, d, rater)
	m.clock.arrange(nodes)
	m.ran = make([]exec.CollectiveCount, len(m.plan.Collectives))
	m.arena = make([]int64, len(list))
	m.ResetCounts()
	return m, m.fits(nil)
}

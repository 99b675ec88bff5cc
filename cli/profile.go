package cli

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/virtual"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/visualize/timeline"
	"github.com/spf13/cobra"
)

// profileFlags are the flags of commands that can write a timeline.
type profileFlags struct {
	file, hw  string
	device    *string // its name; another one may be chosen until the model is open
	measured  timeline.Log
	predicted timeline.Log
	clock     *virtual.Machine // nil: nothing is predicted
	why       string           // nothing is
	err       error            // of a prediction
	work      exec.Work        // the active batch
}

// profileEvents is how many measured events a profile keeps: with what is predicted
// beside them some 100 MiB of JSON.
const profileEvents = 400_000

func (p *profileFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&p.file, "profile", "", "write a timeline of ranks and kernels: FILE.json (Perfetto) or FILE.svg")
	c.Flags().StringVar(&p.hw, "profile-hw", "", "hardware profile of a predicted timeline in --profile (default on CPUs: local)")
	detail(c, "profile", "on CUDA it disables CUDA graphs.")
	detail(c, "profile-hw", "adds the timeline that the virtual device predicts; krait calibrate writes local.")
	expert(c, "profile", "profile-hw")
}

// begin records the steps of a model that is opened next. It checks the flags before anything runs.
func (p *profileFlags) begin(c *cobra.Command, f *modelFlags) error {
	if p.file == "" {
		if p.hw != "" {
			return fmt.Errorf("--profile-hw %s has no effect without --profile FILE", p.hw)
		}
		return nil
	}
	if ext := filepath.Ext(p.file); ext != ".json" && ext != ".svg" {
		return fmt.Errorf("--profile %s: name it FILE.json or FILE.svg", p.file)
	}
	p.device = &f.device.name
	p.measured = timeline.Log{Most: profileEvents}
	f.options.Batches = p.batch
	f.options.Record = p.record
	return nil
}

// opened makes what predicts, once the schedules are known.
func (p *profileFlags) opened(m *krait.Model) error {
	if p.file == "" {
		return nil
	}
	p.measured.Run.Name = "measured on " + *p.device
	name := p.hw
	if name == "" {
		if *p.device != "cpu" {
			p.why = "nothing is predicted without --profile-hw"
			return nil
		}
		name = cost.Local
	}
	hw, err := cost.Find(name)
	switch {
	case err != nil && p.hw == "":
		p.why = "nothing is predicted: " + err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("--profile-hw: %w", err)
	}
	p.predicted = timeline.Log{Run: timeline.Run{Name: "predicted for " + name}} // as many steps as are measured
	p.clock, err = virtual.New(m.Engine().Schedules(), &virtual.Device{Profile: hw, Unlimited: true}, exec.Setup{Slots: 1, PageTokens: 128, Record: p.predicted.Record})
	return err
}

// batch records the active batch.
func (p *profileFlags) batch(w *exec.Work) {
	p.measured.Batch(w)
	p.predicted.Batch(w)
	p.work.Sizes, p.work.Outputs = w.Sizes, append(lowering.OutputMask(nil), w.Outputs...)
}

// record takes a step, and what the virtual device makes of the batch, from where it began.
func (p *profileFlags) record(events []exec.Event) {
	full := p.measured.Full()
	if p.measured.Record(events); p.clock == nil || full || p.err != nil {
		return
	}
	if _, p.err = p.clock.Run(p.work.Sizes, p.work.Outputs); p.err != nil {
		return
	}
	last := &p.predicted.Steps[len(p.predicted.Steps)-1]
	from, _ := p.measured.Steps[len(p.measured.Steps)-1].Bounds()
	own, _ := last.Bounds()
	*last = last.Shift(from - own)
}

// write writes the file, and says what is in it.
func (p *profileFlags) write(c *cobra.Command, quiet bool) error {
	if p.file == "" {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("--profile: the prediction: %w", p.err)
	}
	runs := []timeline.Run{p.measured.Run}
	if p.clock != nil {
		runs = append(runs, p.predicted.Run)
	}
	var text bytes.Buffer
	var err error
	if strings.HasSuffix(p.file, ".svg") {
		err = timeline.SVG(&text, runs)
	} else {
		err = timeline.Trace(&text, runs)
	}
	if err != nil {
		return err
	}
	if err := write(c, p.file, text.Bytes()); err != nil || quiet {
		return err
	}
	said := count(len(p.measured.Steps), "step")
	if p.measured.Left > 0 {
		said = fmt.Sprintf("the first %s of %s", thousands(int64(len(p.measured.Steps))), count(len(p.measured.Steps)+p.measured.Left, "step"))
	}
	fmt.Fprintf(c.ErrOrStderr(), "profile %s: %s", visible(p.file), said)
	if p.why != "" {
		fmt.Fprintf(c.ErrOrStderr(), "; %s", printable(p.why))
	}
	fmt.Fprintln(c.ErrOrStderr())
	return nil
}

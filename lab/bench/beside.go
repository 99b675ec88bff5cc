package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// metered returns the counts of a model with a batch of prompts, or nil.
func (f *File) metered(model, math string, batch, prompt int) *MeterResult {
	for _, m := range f.Metered {
		if m.Model == model && m.Math == cmp.Or(math, "f32") && m.Batch == batch && m.Prompt == prompt && len(m.Phases) > 0 {
			return m
		}
	}
	return nil
}

// phase returns the counts of a step, or nil.
func (m *MeterResult) phase(name string) *MeterPhase {
	if m == nil {
		return nil
	}
	for i := range m.Phases {
		if m.Phases[i].Phase == name {
			return &m.Phases[i]
		}
	}
	return nil
}

// op sums the modelled and roofline times of an operation, in microseconds.
func (p *MeterPhase) op(op string) (modelled, roofline float64) {
	if p == nil {
		return 0, 0
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Op == op {
			modelled, roofline = modelled+1e6*s.Modelled, roofline+1e6*s.Roofline
		}
	}
	return modelled, roofline
}

// modelledKernel returns the modelled microseconds of a measured kernel's step; 0: unknown.
func (f *File) modelledKernel(k *Kernel) float64 {
	if k.Way != "" && k.Way != f.run(k) && k.Way != wayNames[greedy] {
		return 0
	}
	for _, m := range f.Metered {
		if m.Model != k.Model || m.Math != "f32" || m.Prompt != k.Prompt {
			continue
		}
		if p := m.phase(k.Phase); p != nil {
			if i := slices.IndexFunc(p.Steps, func(s MeterStep) bool { return s.Name == k.Name && s.Op == k.Op }); i >= 0 {
				return 1e6 * p.Steps[i].Modelled
			}
		}
	}
	return 0
}

// run is the variant of a measured product that a step in default math has.
func (f *File) run(k *Kernel) string {
	apart := func(o Kernel) bool {
		return o.Way == wayNames[pieces] && o.Model == k.Model && o.Phase == k.Phase && o.Name == k.Name && o.Error == ""
	}
	if slices.ContainsFunc(f.Kernels, apart) {
		return wayNames[pieces]
	}
	return wayNames[exact]
}

// reportModelled compares measurements on a GPU with times modelled from counts.
func reportModelled(w io.Writer, f *File) {
	var rows [][]string
	for i := range f.Results {
		r := &f.Results[i]
		m := f.metered(r.Model, r.Math, r.Batch, r.Prompt)
		if m == nil || r.By != "" || !r.Graphs || r.NoDependent || r.Ranks > 1 {
			continue
		}
		row := []string{r.Model, r.how(), fmt.Sprint(r.Batch), fmt.Sprint(r.Prompt), m.Hardware}
		for k, took := range []float64{r.TTFT, r.Step} {
			p := &m.Phases[len(m.Phases)-1-k] // the prompt is last
			modelled := 1e3 * p.Modelled
			row = append(row, number(took), number(modelled), ratio(took, modelled), percent(1e3*p.Roofline/took))
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Measured beside modelled\n\nModelled times follow from the counts of `krait bench meter` and published rates of the hardware; a ratio above 1 means that the step took longer. The roofline is the least bytes at the profile's achieved bandwidth, or the arithmetic at the rate of bf16, whichever is longer.\n\n")
		table(w, 2, "model|how|batch|prompt|modelled for|prompt, ms|modelled|ratio|of the roofline|step, ms|modelled|ratio|of the roofline", rows)
	}
}

// reportOps compares operations measured in their steps with modelled times.
func reportOps(w io.Writer, f *File) {
	var rows [][]string
	for _, r := range f.Ops {
		var m *MeterResult
		if r.Ranks <= 1 && r.Device != "cpu" {
			m = f.metered(r.Model, r.Math, r.Batch, r.Prompt)
		}
		how := (&Result{Device: r.Device, Math: r.Math, Graphs: true, Ranks: r.Ranks}).how()
		for i := range r.Phases {
			p := &r.Phases[i]
			for _, o := range p.Ops {
				modelled, roofline := m.phase(p.Phase).op(o.Op)
				modelled = cmp.Or(modelled, o.Modelled)
				rows = append(rows, []string{r.Model, how, p.Phase, o.Op, fmt.Sprint(o.Count), number(o.Time), number(modelled), ratio(o.Time, modelled), number(roofline), percent(roofline / o.Time)})
			}
		}
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Operations in their steps\n\nThe total of each operation in a step, with every launch between two events; short launches take some µs longer than in a graph. Collectives count from when the last rank arrives, and are modelled by the links of a profile.\n\n")
		table(w, 4, "model|how|step|operation|times|µs|modelled|ratio|roofline, µs|of the roofline", rows)
	}
}

// reportKernels compares each kernel with its roofline and its modelled time.
func reportKernels(w io.Writer, f *File) {
	list := f.Kernels
	if len(list) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Kernels\n\nThe roofline is operands and results through memory once, or the arithmetic at the highest clock, whichever is longer. Operands are packed, and not in the chip's cache. Modelled is the time by `krait bench meter` of the same operation in a step, in default math, with its launch; a ratio above 1 means that the kernel took longer.\n\n")
	slices.SortStableFunc(list, func(a, b Kernel) int { return strings.Compare(a.Model, b.Model) })
	var rows [][]string
	for _, k := range list {
		share := fmt.Sprintf("%.0f %%", 100*k.Share)
		if k.Error != "" {
			share = "failed: " + strings.ReplaceAll(k.Error, "\n", " ")
		}
		modelled := f.modelledKernel(&k)
		rows = append(rows, []string{k.Model, k.Phase, strings.TrimSuffix(k.Op+", "+k.Way, ", "), k.Launch, k.Shapes, k.Bound, fmt.Sprint(k.Count), number(k.Time), number(k.Roofline), share, number(modelled), ratio(k.Time, modelled)})
	}
	for i := range rows {
		for j, text := range rows[i] {
			rows[i][j] = strings.ReplaceAll(text, "|", "\\|")
		}
	}
	table(w, 6, "model|phase|operation|kernel|operands|bound by|times|µs|roofline, µs|of the roofline|modelled, µs|ratio", rows)
}

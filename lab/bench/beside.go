package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// metered is what was counted of a model with a batch of prompts; nil: nothing.
func (f *File) metered(model, math string, batch, prompt int) *Metered {
	for _, m := range f.Metered {
		if m.Model == model && m.Math == cmp.Or(math, "f32") && m.Batch == batch && m.Prompt == prompt && len(m.Phases) > 0 {
			return m
		}
	}
	return nil
}

// phase is what was counted of a step; nil: nothing.
func (m *Metered) phase(name string) *MeteredPhase {
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

// op sums the steps of an operation: microseconds.
func (p *MeteredPhase) op(op string) (modelled, floor float64) {
	if p == nil {
		return 0, 0
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Op == op {
			modelled, floor = modelled+1e6*s.Modelled, floor+1e6*s.Floor
		}
	}
	return modelled, floor
}

// modelledKernel is the microseconds that are modelled for the step that a kernel was measured
// as; 0: nothing is.
func (f *File) modelledKernel(k *Kernel) float64 {
	if k.Way != "" && k.Way != wayNames[exact] && k.Way != wayNames[greedy] {
		return 0
	}
	for _, m := range f.Metered {
		if m.Model != k.Model || m.Math != "f32" || m.Prompt != k.Prompt {
			continue
		}
		if p := m.phase(k.Phase); p != nil {
			if i := slices.IndexFunc(p.Steps, func(s MeteredStep) bool { return s.Name == k.Name && s.Op == k.Op }); i >= 0 {
				return 1e6 * p.Steps[i].Modelled
			}
		}
	}
	return 0
}

// reportModelled puts what was measured on a GPU beside what was modelled of counts for the same
// model, math, batch and prompt.
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
			row = append(row, number(took), number(modelled), ratio(took, modelled), percent(1e3*p.Floor/took))
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Measured beside modelled\n\nModelled are times of what `krait bench --meter` counted, for published rates of the hardware; a ratio above 1 says that the step took longer. The floor is the longer of the least bytes, at the bandwidth that the profile says is reached, and the arithmetic at the rate of bf16.\n\n")
		table(w, 2, "model|how|batch|prompt|modelled for|prompt, ms|modelled|ratio|of the floor|step, ms|modelled|ratio|of the floor", rows)
	}
}

// reportOps puts operations, measured where they run, beside what is modelled for them.
func reportOps(w io.Writer, f *File) {
	var rows [][]string
	for _, r := range f.Ops {
		var m *Metered
		if r.Ranks <= 1 && r.Device != "cpu" {
			m = f.metered(r.Model, r.Math, r.Batch, r.Prompt)
		}
		how := (&Result{Device: r.Device, Math: r.Math, Graphs: true, Ranks: r.Ranks}).how()
		for i := range r.Phases {
			p := &r.Phases[i]
			for _, o := range p.Ops {
				modelled, floor := m.phase(p.Phase).op(o.Op)
				modelled = cmp.Or(modelled, o.Modelled)
				rows = append(rows, []string{r.Model, how, p.Phase, o.Op, fmt.Sprint(o.Count), number(o.Time), number(modelled), ratio(o.Time, modelled), number(floor), percent(floor / o.Time)})
			}
		}
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Operations where they run\n\nAll of an operation in a step, each launched by itself between two events; short ones take some µs longer so than in a graph. Collectives are measured from when the last rank takes part, and modelled by the links of a profile.\n\n")
		table(w, 4, "model|how|step|operation|times|µs|modelled|ratio|floor, µs|of the floor", rows)
	}
}

// reportKernels puts each kernel beside what is modelled for the first step that runs it so.
func reportKernels(w io.Writer, f *File) {
	list := f.Kernels
	if len(list) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Kernels\n\nThe floor is operands and results through memory once, or the arithmetic at the highest clock, whichever takes longer. Operands are packed, and not in the chip's cache. Modelled is what `krait bench --meter` makes of the same operation in a step, in default math, its launch included; a ratio above 1 says that the kernel took longer.\n\n")
	slices.SortStableFunc(list, func(a, b Kernel) int { return strings.Compare(a.Model, b.Model) })
	var rows [][]string
	for _, k := range list {
		share := fmt.Sprintf("%.0f %%", 100*k.Share)
		if k.Error != "" {
			share = "failed: " + strings.ReplaceAll(k.Error, "\n", " ")
		}
		modelled := f.modelledKernel(&k)
		rows = append(rows, []string{k.Model, k.Phase, strings.TrimSuffix(k.Op+", "+k.Way, ", "), k.Launch, k.Shapes, k.Bound, fmt.Sprint(k.Count), number(k.Time), number(k.Floor), share, number(modelled), ratio(k.Time, modelled)})
	}
	for i := range rows {
		for j, text := range rows[i] {
			rows[i][j] = strings.ReplaceAll(text, "|", "\\|")
		}
	}
	table(w, 6, "model|phase|operation|kernel|operands|bound by|times|µs|floor, µs|of the floor|modelled, µs|ratio", rows)
}

// Package check runs a checkpoint against stored reference numbers: prefill
// logits, hidden states, states, greedy continuations and cached decoding, each
// batched, alone and in chunks. The file format is described in docs/check.md.
package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
)

// Options configure a check.
type Options struct {
	Expected  string  // the file; empty: expected.safetensors in the model's folder
	Tolerance float64 // the largest absolute difference that passes
	Stated    bool    // use the tolerance in the file's metadata, if there is one
	Chunks    []int   // prompts are also cut into chunks of these sizes
	Reference bool    // run the float64 kernels
	Sharding  krait.Sharding
	Device    exec.Device     // nil: the CPU
	Processes *comm.Processes // that run a rank each; nil: all ranks run here
	// Warn is called with what the loader ignored in the checkpoint; may be nil.
	Warn func(string)
	// Progress gets the bytes of weights loaded so far, and of all; may be nil.
	Progress func(done, total int64)

	only  func(prompt, way string) bool // selects what to run; nil: everything
	steps int                           // bound of decode steps, without states after them; 0: none
}

// Line is the result for one quantity, over all ways of running the prompt.
type Line struct {
	Prompt, Quantity string
	Max              float64 // largest absolute difference
	Tolerance        float64 // the largest that passes
	At               []int   // where it is
	Way              string  // in which way of running
	Fail             string  // why it fails; empty: it passes
	Skip             string  // why it was not compared; empty: it was
}

// Run compares and reports a line per quantity. It returns whether all passed;
// an error means that the comparison could not be made.
func Run(ctx context.Context, dir string, o Options, report func(Line)) (bool, error) {
	if err := o.find(dir); err != nil {
		return false, err
	}
	if !(o.Tolerance >= 0) {
		return false, fmt.Errorf("tolerance %v: it must be a number from 0", o.Tolerance)
	}
	if i := slices.IndexFunc(o.Chunks, func(n int) bool { return n < 1 }); i >= 0 {
		return false, fmt.Errorf("chunks of %d tokens: a chunk has at least 1", o.Chunks[i])
	}
	f, err := safetensors.Open(o.Expected)
	if err != nil {
		return false, err
	}
	defer f.Close()
	prompts, err := readPrompts(f)
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.Expected, err)
	}
	if err := o.state(f.Metadata()["tolerance"]); err != nil {
		return false, fmt.Errorf("%s: %w", o.Expected, err)
	}
	m, err := open(dir, prompts, o)
	if err != nil {
		return false, err
	}
	defer m.Close()
	closeMTP, err := openMTP(dir, prompts, o)
	defer closeMTP()
	if err != nil {
		return false, err
	}
	for _, w := range m.Warnings {
		if o.Warn != nil {
			o.Warn(w)
		}
	}
	ok, compared := true, 0
	for _, p := range prompts {
		p.limit = o.steps
		if o.only != nil && len(p.ways(o)) == 0 {
			continue
		}
		lines, err := p.run(ctx, m, o)
		if err != nil {
			return false, fmt.Errorf("prompt %s: %w", p.name, err)
		}
		for _, l := range lines {
			report(l)
			ok = ok && l.Fail == ""
			if l.Skip == "" {
				compared++
			}
		}
	}
	if compared == 0 {
		return false, fmt.Errorf("%s: it has nothing to compare", o.Expected)
	}
	return ok, nil
}

// find sets the path of the reference numbers.
func (o *Options) find(dir string) error {
	if o.Expected != "" {
		return nil
	}
	o.Expected = filepath.Join(dir, "expected.safetensors")
	if _, err := os.Stat(o.Expected); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: there is no expected.safetensors; --expected names the file of reference numbers", dir)
	}
	return nil
}

// Open opens the model as Run does, in a follower's process.
func Open(dir string, o Options) (*krait.Model, error) {
	if err := o.find(dir); err != nil {
		return nil, err
	}
	f, err := safetensors.Open(o.Expected)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	prompts, err := readPrompts(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Expected, err)
	}
	return open(dir, prompts, o)
}

// state uses the tolerance of the file, if Stated is set.
func (o *Options) state(stated string) error {
	if !o.Stated || stated == "" {
		return nil
	}
	t, err := strconv.ParseFloat(stated, 64)
	if err != nil || !(t >= 0) || math.IsInf(t, 0) {
		return fmt.Errorf("the metadata give the tolerance %q; it must be a number from 0", stated)
	}
	o.Tolerance = t
	return nil
}

// open opens the model with a slot per sequence and the values that the file has numbers for.
func open(dir string, prompts []*prompt, o Options) (*krait.Model, error) {
	slots := 1
	for _, p := range prompts {
		slots = max(slots, p.batch)
	}
	options := krait.Options{Slots: slots, Reference: o.Reference, Sharding: o.Sharding, Device: o.Device, Processes: o.Processes, Progress: o.Progress}
	_, g, err := checkpoint.Describe(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range prompts {
		for _, q := range p.quantities {
			q.source(g, p)
			value := q.value
			if q.kind == mtpRows && value != "" {
				value = lastNorm
			}
			output := slices.ContainsFunc(g.Outputs, func(o graph.Output) bool { return o.Name == value })
			if value != "" && !slices.Contains(options.Keep, value) && !output {
				options.Keep = append(options.Keep, value)
			}
		}
	}
	return krait.Open(dir, options)
}

// prompt is the numbers of one prompt in the file.
type prompt struct {
	name          string
	batch, length int
	ids           [][]int
	quantities    []*quantity
	next          [][]int      // decode.ids, or nil
	steps         int          // decode steps
	limit         int          // of these; 0: none
	head          *krait.Model // the MTP head, if there are numbers of it
}

// readPrompts finds every X.input_ids and what belongs to X.
func readPrompts(f *safetensors.File) ([]*prompt, error) {
	var prompts []*prompt
	for _, name := range f.Names() {
		if x, ok := strings.CutSuffix(name, ".input_ids"); ok {
			t, _ := f.Tensor(name)
			ids, err := table(t)
			if err != nil {
				return nil, err
			}
			if len(ids) == 0 || len(ids[0]) == 0 {
				return nil, fmt.Errorf("%s has shape %v: an empty prompt", name, t.Shape)
			}
			prompts = append(prompts, &prompt{name: x, batch: len(ids), length: len(ids[0]), ids: ids})
		}
	}
	if len(prompts) == 0 {
		return nil, errors.New("no prompt: a prompt X is a tensor X.input_ids of token ids [batch, length]")
	}
	for _, name := range f.Names() {
		if err := assign(prompts, f, name); err != nil {
			return nil, err
		}
	}
	return prompts, nil
}

// assign adds a tensor to the prompt with the longest name that is a prefix of its name.
func assign(prompts []*prompt, f *safetensors.File, name string) error {
	var p *prompt
	for _, x := range prompts {
		if strings.HasPrefix(name, x.name+".") && (p == nil || len(x.name) > len(p.name)) {
			p = x
		}
	}
	if p == nil || name == p.name+".input_ids" {
		return nil
	}
	t, _ := f.Tensor(name)
	q := &quantity{name: name[len(p.name)+1:], shape: t.Shape}
	var err error
	if q.name == "decode.ids" {
		if p.next, err = table(t); err != nil {
			return err
		}
		if len(p.next) != p.batch {
			return fmt.Errorf("%s has %d rows, the prompt has %d", name, len(p.next), p.batch)
		}
		p.steps = max(p.steps, t.Shape[1])
	} else if q.integers = strings.HasPrefix(t.DType, "I") || strings.HasPrefix(t.DType, "U"); !q.integers {
		if q.want, err = t.Float64s(); err != nil {
			return err
		}
	}
	if q.name == "decode.logits" && len(t.Shape) == 3 {
		p.steps = max(p.steps, t.Shape[1])
	}
	p.quantities = append(p.quantities, q)
	return nil
}

// table reads integers [batch, length].
func table(t safetensors.Tensor) ([][]int, error) {
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("%s has shape %v, expected [batch, length]", t.Name, t.Shape)
	}
	flat, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	rows := make([][]int, t.Shape[0])
	for i := range rows {
		for _, v := range flat[i*t.Shape[1] : (i+1)*t.Shape[1]] {
			rows[i] = append(rows[i], int(v))
		}
	}
	return rows, nil
}

package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
)

// way is one way of running a prompt: the batches of its sequences, and the chunk size.
type way struct {
	name   string
	groups [][]int
	chunk  int
}

func (p *prompt) ways(o Options) []way {
	var all []int
	var alone [][]int
	for b := range p.batch {
		all = append(all, b)
		alone = append(alone, []int{b})
	}
	ways := []way{{"whole", [][]int{all}, p.length}}
	if p.batch > 1 {
		ways[0].name = "batched"
		ways = append(ways, way{"alone", alone, p.length})
	}
	for _, n := range o.Chunks {
		ways = append(ways, way{fmt.Sprintf("chunks of %d", n), [][]int{all}, n})
	}
	return slices.DeleteFunc(ways, func(w way) bool { return o.only != nil && !o.only(p.name, w.name) })
}

// run runs the prompt in every way and returns its lines.
func (p *prompt) run(ctx context.Context, m *krait.Model, o Options) ([]Line, error) {
	for _, w := range p.ways(o) {
		for _, group := range w.groups {
			r := runner{p: p, m: m, way: w, group: group}
			err := r.run(ctx)
			r.free()
			if err != nil {
				return nil, err
			}
		}
	}
	var lines []Line
	for _, q := range p.quantities {
		q.line.Tolerance = o.Tolerance
		if q.line.Fail == "" && q.line.Skip == "" && q.kind != greedy && !(q.line.Max <= o.Tolerance) {
			q.line.Fail = fmt.Sprintf("over the tolerance of %g", o.Tolerance)
		}
		lines = append(lines, q.line)
	}
	return lines, nil
}

// runner runs a group of the prompt's sequences in one way.
type runner struct {
	p     *prompt
	m     *krait.Model
	way   way
	group []int
	slots []int
	last  [][]float32 // logits after the last token, by index in the group
	// hidden is what an MTP head reads of each sequence.
	hidden [][]float32
}

func (r *runner) free() {
	for _, s := range r.slots {
		r.m.Engine().Free(s)
	}
}

func (r *runner) run(ctx context.Context) error {
	for range r.group {
		s, err := r.m.Engine().Alloc()
		if err != nil {
			return err
		}
		r.slots = append(r.slots, s)
	}
	r.last, r.hidden = make([][]float32, len(r.group)), make([][]float32, len(r.group))
	for at := 0; at < r.p.length; at += r.way.chunk {
		end := min(at+r.way.chunk, r.p.length)
		if err := r.step(ctx, rows, at, func(b int) []int { return r.p.ids[b][at:end] }); err != nil {
			return err
		}
	}
	if err := r.states(state); err != nil {
		return err
	}
	if err := r.mtp(ctx); err != nil {
		return err
	}
	return r.decode(ctx)
}

// decode feeds the file's continuation, or the model's own where the file has
// none, and compares what the model would have chosen.
func (r *runner) decode(ctx context.Context) error {
	for i := range r.p.steps {
		if i == r.p.limit && i > 0 {
			return nil
		}
		next := map[int]int{}
		for k, b := range r.group {
			next[b] = argmax(r.last[k])
			if r.p.next != nil && i < len(r.p.next[b]) {
				r.choice(b, i, next[b])
				next[b] = r.p.next[b][i]
			}
		}
		if err := r.step(ctx, decodeRows, i, func(b int) []int { return []int{next[b]} }); err != nil {
			return err
		}
	}
	if r.p.steps == 0 {
		return nil
	}
	return r.states(decodeState)
}

// choice compares a greedily chosen token with the file's.
func (r *runner) choice(b, i, got int) {
	want := r.p.next[b][i]
	for _, q := range r.p.quantities {
		if q.kind == greedy && q.line.Fail == "" {
			q.line.Way = r.way.name
			if got != want {
				q.line.At = []int{b, i}
				q.line.Fail = fmt.Sprintf("the model chooses %d, the file has %d", got, want)
			}
		}
	}
}

// step feeds the tokens and compares the rows of kind k, the first of which is
// row at of each sequence.
func (r *runner) step(ctx context.Context, k kind, at int, tokens func(b int) []int) error {
	var batch exec.Batch
	for i, b := range r.group {
		q := exec.Sequence{Slot: r.slots[i], Tokens: tokens(b)}
		for j := range q.Tokens {
			q.Rows = append(q.Rows, j)
		}
		batch.Sequences = append(batch.Sequences, q)
	}
	results, err := r.m.Engine().Step(ctx, &batch)
	if err != nil {
		return err
	}
	n := len(batch.Sequences[0].Tokens)
	for _, q := range r.p.quantities {
		if q.kind != k || q.value == "" {
			continue
		}
		out, err := results.Output(q.value)
		if err != nil {
			return err
		}
		for i, b := range r.group {
			for j := range n {
				q.row(r.way.name, b, at+j, out.Row(i*n+j))
			}
		}
	}
	if k == rows && r.p.drafts() != nil {
		out, err := results.Output(lastNorm)
		if err != nil {
			return err
		}
		for i := range r.group {
			for j := range n {
				r.hidden[i] = append(r.hidden[i], out.Row(i*n+j)...)
			}
		}
	}
	logits, err := results.Output("logits")
	if err != nil {
		return err
	}
	for i := range r.group {
		r.last[i] = append(r.last[i][:0], logits.Row((i+1)*n-1)...)
	}
	return nil
}

// states compares the states of kind k.
func (r *runner) states(k kind) error {
	for _, q := range r.p.quantities {
		if q.kind != k || q.state == "" {
			continue
		}
		for i, b := range r.group {
			got, err := r.m.Engine().State(r.slots[i], q.state)
			if err != nil {
				return err
			}
			q.stateOf(r.way.name, b, got)
		}
	}
	return nil
}

func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

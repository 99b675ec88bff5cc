// Package bench measures the speed of models and kernels, and its share of the roofline of their
// device. Times are medians.
package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/kernels"
)

// Options configure a measurement.
type Options struct {
	Batch  int // sequences
	Prompt int // tokens of each prompt
	Chunk  int // prefill chunk, in tokens of each sequence; 0: the whole prompt
	Tokens int // decode steps
	Repeat int // runs, after a warm-up run
	// NoCache processes the whole text again for every token, as without states.
	NoCache bool
	// Counter counts calls of the driver; nil on the CPU.
	Counter *Counter
	// Bandwidth of memory, bytes per second; 0: unknown.
	Bandwidth float64
	// Read measures it again, in turns with decode steps; nil: Bandwidth counts.
	Read func() float64
	// Rate of the processors, floating-point operations per second; 0: unknown.
	Rate float64
	GPUs int // of the ranks; 0: none
	// Progress gets the number of prompts prefilled and decode steps run, between measured times; may
	// be nil.
	Progress func(done, all int)
	first    int // number of the first sequence, among all replicas
}

// check returns an error for numbers that are too small.
func (o *Options) check() error {
	if o.Batch < 1 || o.Prompt < 1 || o.Tokens < 1 || o.Repeat < 1 || o.Chunk < 0 {
		return fmt.Errorf("batch %d, prompt %d, chunk %d, tokens %d, repeat %d: all must be at least 1, the chunk 0", o.Batch, o.Prompt, o.Chunk, o.Tokens, o.Repeat)
	}
	return nil
}

// chunk returns the tokens of a prefill chunk.
func (o *Options) chunk() int {
	if o.Chunk == 0 {
		return o.Prompt
	}
	return o.Chunk
}

// Result is the speed of a model with a batch.
type Result struct {
	By          string `json:"by,omitempty"` // the program; empty: Krait
	Model       string `json:"model"`
	Family      string `json:"family,omitempty"`
	Parameters  int64  `json:"parameters,omitempty"`
	Device      string `json:"device,omitempty"`
	Math        string `json:"math,omitempty"`
	Graphs      bool   `json:"graphs"`
	Ranks       int    `json:"ranks,omitempty"`
	NoDependent bool   `json:"no_dependent_launch,omitempty"`
	Batch       int    `json:"batch"`
	Prompt      int    `json:"prompt"`
	Chunk       int    `json:"chunk,omitempty"`
	Tokens      int    `json:"tokens"`
	NoCache     bool   `json:"no_cache,omitempty"`
	Replicas    int    `json:"replicas,omitempty"` // data parallel; 0: one
	Repeat      int    `json:"repeat,omitempty"`

	TTFT    float64 `json:"ttft_ms"`              // time to the first token of all sequences
	Prefill float64 `json:"prefill_tokens_per_s"` // of all sequences
	Step    float64 `json:"step_ms"`              // a decode step: one token per sequence
	Decode  float64 `json:"decode_tokens_per_s"`  // of all sequences

	// Of a decode step, with a driver: launches by the host, how many of them replay graphs, copies,
	// and the host's time without waiting.
	Launches float64 `json:"launches_per_step,omitempty"`
	Replays  float64 `json:"graphs_per_step,omitempty"`
	Copies   float64 `json:"copies_per_step,omitempty"`
	Host     float64 `json:"host_us_per_step,omitempty"`

	Bytes     int64   `json:"bytes_per_step,omitempty"`        // weights and states, of the GPU with most
	Bandwidth float64 `json:"bytes_per_second,omitempty"`      // measured: the median of Reads, if there are any
	Reads     Spread  `json:"reads_bytes_per_second,omitzero"` // of memory, in turns with steps
	Roofline  float64 `json:"floor_ms,omitempty"`              // Bytes at Bandwidth; where Rate is known, or the arithmetic at it, if that takes longer
	Share     float64 `json:"share_of_floor,omitempty"`        // Roofline of Step: 1 is as fast as memory; of turns of reads and steps, the median

	// Of prefill, on the CPU.
	FLOPs          int64   `json:"prompt_flops,omitempty"`
	Rate           float64 `json:"flops_per_second,omitempty"` // measured
	PromptRoofline float64 `json:"prompt_floor_ms,omitempty"`
	PromptShare    float64 `json:"prompt_share_of_floor,omitempty"`

	Logits  string `json:"logits_sha256,omitempty"`   // after the last token
	Repeats *bool  `json:"repeats_bitwise,omitempty"` // all runs had the same logits and tokens
	Note    string `json:"note,omitempty"`

	ops   int64     // of a decode step
	reads []float64 // that Reads is of
}

// run is a model under measurement.
type run struct {
	o      Options
	m      *krait.Model
	e      *exec.Engine
	slots  []int
	prompt [][]int
	next   []int // last token of each sequence
	batch  exec.Batch
	greedy []exec.Choice
	done   int // steps, as Progress counts them
	turns  turns
}

// Measure measures a model that has a free slot for each sequence of the batch.
func Measure(ctx context.Context, m *krait.Model, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r, err := newRun(m, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.measure(ctx)
}

func newRun(m *krait.Model, o Options) (*run, error) {
	r := &run{o: o, m: m, e: m.Engine(), next: make([]int, o.Batch), greedy: make([]exec.Choice, o.Batch), turns: turns{long: turnSteps}}
	if !o.NoCache { // otherwise a step is a prefill
		r.turns.read = o.Read
	}
	for i := range o.Batch {
		slot, err := r.e.Alloc()
		if err != nil {
			r.close()
			return nil, err
		}
		r.slots = append(r.slots, slot)
		r.prompt = append(r.prompt, tokens(o.Prompt, m.Vocab(), o.first+i))
	}
	r.batch.Sequences = make([]exec.Sequence, o.Batch)
	return r, nil
}

// turnSteps is the time of the decode steps between two reads of memory, at least.
const turnSteps = 50 * time.Millisecond

func (r *run) close() {
	for _, slot := range r.slots {
		_ = r.e.Free(slot) // newRun allocated it
	}
}

// tokens returns pseudorandom token ids, different ones for each sequence.
func tokens(n, vocab, sequence int) []int {
	list := make([]int, n)
	x := uint64(sequence)*0x9e3779b97f4a7c15 + 1
	for i := range list {
		x = x*6364136223846793005 + 1442695040888963407
		list[i] = int((x >> 33) % uint64(vocab))
	}
	return list
}

func (r *run) measure(ctx context.Context) (*Result, error) {
	var prefill, steps, host []time.Duration
	var sums []string
	var calls Calls
	for i := range r.o.Repeat + 1 {
		first, err := r.read(ctx, r.prompt)
		if err != nil {
			return nil, err
		}
		r.tell()
		list, at, made, err := r.decode(ctx)
		if err != nil {
			return nil, err
		}
		sum, err := r.logits(ctx)
		if err != nil {
			return nil, err
		}
		if sums = append(sums, sum); i > 0 { // the first run compiles and captures
			prefill, steps, host, calls = append(prefill, first), append(steps, list...), append(host, at...), made
		} else {
			r.turns.reads, r.turns.list = nil, nil
		}
	}
	return r.result(prefill, steps, host, calls, sums), nil
}

// tell counts a prompt or a decode step.
func (r *run) tell() {
	if r.done++; r.o.Progress != nil {
		r.o.Progress(r.done, (r.o.Repeat+1)*(1+r.o.Tokens))
	}
}

// read prefills texts of equal length and chooses their next tokens.
func (r *run) read(ctx context.Context, texts [][]int) (time.Duration, error) {
	for _, slot := range r.slots {
		if err := r.e.Reset(slot); err != nil {
			return 0, err
		}
	}
	all, chunk := len(texts[0]), r.o.Chunk
	if chunk == 0 {
		chunk = all
	}
	none := []int{}
	start := time.Now()
	for at := 0; at < all; at += chunk {
		end := min(at+chunk, all)
		for i, slot := range r.slots {
			q := &r.batch.Sequences[i]
			*q = exec.Sequence{Slot: slot, Tokens: texts[i][at:end]}
			if end < all {
				q.Rows = none
			}
		}
		if err := r.step(ctx, end == all); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// decode runs the decode steps. It returns the time of each, and the host's part without waiting.
func (r *run) decode(ctx context.Context) (steps, host []time.Duration, made Calls, err error) {
	texts := slices.Clone(r.prompt)
	r.turns.start()
	for range r.o.Tokens {
		r.advance()
		before := r.o.Counter.Calls()
		start := time.Now()
		if r.o.NoCache {
			for i, id := range r.next {
				texts[i] = append(slices.Clip(texts[i]), id)
			}
			_, err = r.read(ctx, texts)
		} else {
			err = r.step(ctx, true)
		}
		if err != nil {
			return nil, nil, made, err
		}
		took := time.Since(start)
		made = r.o.Counter.Calls().Minus(before)
		steps, host = append(steps, took), append(host, took-made.Waited/time.Duration(max(1, r.o.GPUs)))
		r.turns.add(took)
		r.tell()
	}
	r.turns.end()
	r.advance()
	return steps, host, made, nil
}

// advance makes a batch of the last token of each sequence.
func (r *run) advance() {
	for i, slot := range r.slots {
		r.batch.Sequences[i] = exec.Sequence{Slot: slot, Tokens: r.next[i : i+1]}
	}
}

// step runs the batch, with a token chosen for each sequence if choose is set.
func (r *run) step(ctx context.Context, choose bool) error {
	r.batch.Choices, r.batch.Outputs = nil, []string{}
	if choose {
		r.batch.Choices, r.batch.Outputs = r.greedy, nil
	}
	results, err := r.e.Step(ctx, &r.batch)
	for i, id := range results.Tokens {
		r.next[i] = int(id)
	}
	return err
}

// logits runs one more step and returns a hash of its logits, which depend on all states and tokens
// before.
func (r *run) logits(ctx context.Context) (string, error) {
	r.batch.Choices, r.batch.Outputs = nil, nil
	results, err := r.e.Step(ctx, &r.batch)
	if err != nil {
		return "", err
	}
	out, err := results.Output("logits")
	if err != nil {
		return "", err
	}
	return hash(&out), nil
}

func hash(t *kernels.Tensor) string {
	h := sha256.New()
	for i := range t.Rows() {
		for _, v := range t.Row(i) {
			fmt.Fprintf(h, "%x,", v)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *run) result(prefill, steps, host []time.Duration, calls Calls, sums []string) *Result {
	o := &r.o
	same := !slices.ContainsFunc(sums, func(s string) bool { return s != sums[0] })
	out := &Result{
		Model: r.m.Name, Family: r.m.Family(), Parameters: r.m.Parameters(), Ranks: r.m.Ranks(),
		Batch: o.Batch, Prompt: o.Prompt, Chunk: o.Chunk, Tokens: o.Tokens, NoCache: o.NoCache, Repeat: o.Repeat,
		TTFT: ms(quantile.Of(prefill, 0.5)), Step: ms(quantile.Of(steps, 0.5)),
		Logits: sums[0], Repeats: &same,
	}
	out.Prefill = rate(o.Batch*o.Prompt, out.TTFT)
	out.Decode = rate(o.Batch, out.Step)
	if o.Counter != nil {
		out.Launches, out.Replays, out.Copies = float64(calls.Launches()), float64(calls.Graphs), float64(calls.Copies)
		out.Host = 1e3 * ms(quantile.Of(host, 0.5))
	}
	if o.Bandwidth > 0 {
		r.judge(out)
	}
	return out
}

// judge compares a result with the roofline of memory, and on the CPU of arithmetic.
func (r *run) judge(out *Result) {
	o, list := &r.o, r.e.Schedules()
	past := o.Prompt + o.Tokens/2
	out.reads, out.Reads = r.turns.reads, spreadOf(r.turns.reads)
	out.Bytes, out.Bandwidth, out.Rate = stepBytes(list, max(1, o.GPUs), o.Batch, past), cmp.Or(out.Reads.Median, o.Bandwidth), o.Rate
	if !o.NoCache { // otherwise a step is a prefill
		step := phase{seqs: o.Batch, tokens: 1, past: past}
		out.ops = flops(list, step.sizes())
		out.Roofline = least(out.Bytes, out.ops, out.Bandwidth, o.Rate)
		out.Share = cmp.Or(r.turns.share(out.Bytes, out.ops, o.Rate), out.Roofline/out.Step)
	}
	if o.Rate > 0 {
		var bytes int64
		bytes, out.FLOPs = promptCost(list, o)
		out.PromptRoofline = least(bytes, out.FLOPs, out.Bandwidth, o.Rate)
		out.PromptShare = out.PromptRoofline / out.TTFT
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func rate(n int, ms float64) float64 { return 1e3 * float64(n) / ms }

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/internal/quantile"
	"github.com/krait-ml/krait/internal/splitmix"
	"github.com/krait-ml/krait/session/cache"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/session/schedule"
)

// TraceOptions configure the replay of a trace.
type TraceOptions struct {
	// Speed is the factor by which requests arrive faster than in the trace. 0: a closed loop with
	// one client per slot.
	Speed float64
	Tell  func(done, all int) // progress in requests; may be nil
}

// TraceRun is one replay of a trace.
type TraceRun struct {
	TTFT    Percentiles `json:"ttft_ms"`
	Seconds float64     `json:"seconds"`      // from the first arrival to the last token
	Output  float64     `json:"tokens_per_s"` // of output
	Hits    []int       `json:"hits"`         // by request, tokens from the prefix cache
}

// TraceResult is the result of a trace with a model: medians over rounds, with or without a prefix
// cache.
type TraceResult struct {
	Trace        string      `json:"trace"`
	Model        string      `json:"model"`
	Device       string      `json:"device"`
	Ranks        int         `json:"ranks"`
	Requests     int         `json:"requests"`
	InputTokens  int64       `json:"input_tokens"`
	OutputTokens int64       `json:"output_tokens"`
	Speed        float64     `json:"speed"` // 0: closed loop
	Slots        int         `json:"slots"`
	Cache        int64       `json:"prefix_cache"` // bytes; 0: none
	TTFT         Percentiles `json:"ttft_ms"`
	Output       float64     `json:"tokens_per_s"`
	HitTokens    int64       `json:"hit_tokens"`
	Runs         []TraceRun  `json:"runs"`
	// Stats of the prefix cache in the last round.
	Stats cache.Stats `json:"stats"`
}

// Settle computes the medians.
func (r *TraceResult) Settle() {
	of := func(f func(*TraceRun) float64) float64 {
		var list []float64
		for i := range r.Runs {
			list = append(list, f(&r.Runs[i]))
		}
		return quantile.Median(list)
	}
	r.TTFT.P50 = of(func(x *TraceRun) float64 { return x.TTFT.P50 })
	r.TTFT.P95 = of(func(x *TraceRun) float64 { return x.TTFT.P95 })
	r.TTFT.P99 = of(func(x *TraceRun) float64 { return x.TTFT.P99 })
	r.Output = of(func(x *TraceRun) float64 { return x.Output })
	r.HitTokens = int64(of(func(x *TraceRun) float64 { return float64(x.hitTokens()) }))
}

func (x *TraceRun) hitTokens() (n int) {
	for _, h := range x.Hits {
		n += h
	}
	return n
}

// ReportTraces writes a table, with ratios for a trace with a cache after the same without.
func ReportTraces(w io.Writer, list []TraceResult) {
	var rows [][]string
	for i := range list {
		r := &list[i]
		row := []string{r.Trace, r.Model, "none", number(r.TTFT.P50), number(r.TTFT.P95), number(r.TTFT.P99), number(r.Output), "–", "–", "–", "–"}
		if r.Cache > 0 {
			row[2] = driver.Bytes(r.Cache)
			row = append(row[:7], fmt.Sprint(r.HitTokens), fmt.Sprintf("%.0f %%", 100*float64(r.HitTokens)/float64(max(1, r.InputTokens))), fmt.Sprint(r.Stats.Evictions), fmt.Sprint(r.Stats.Alpha))
		}
		rows = append(rows, row)
		if i > 0 && r.Cache > 0 && list[i-1].Cache == 0 {
			p := &list[i-1]
			rows = append(rows, []string{"", "", "ratio", ratio(r.TTFT.P50, p.TTFT.P50), ratio(r.TTFT.P95, p.TTFT.P95), ratio(r.TTFT.P99, p.TTFT.P99), ratio(r.Output, p.Output), "", "", "", ""})
		}
	}
	table(w, 3, "trace|model|prefix cache|TTFT p50, ms|p95, ms|p99, ms|output, tokens/s|hit tokens|of input|evictions|α", rows)
}

// Percentiles of times, by the nearest rank.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

func percentiles(list []float64) Percentiles {
	return Percentiles{quantile.Rank(list, 50), quantile.Rank(list, 95), quantile.Rank(list, 99)}
}

// MapTrace returns the requests of a trace with token ids below vocab: unchanged if all are, and
// otherwise each id hashed. Common prefixes stay common; ids of different texts rarely collide.
func MapTrace(trace []prefix.Request, vocab int) []prefix.Request {
	if fit(trace, vocab) {
		return trace
	}
	out := slices.Clone(trace)
	for i, r := range trace {
		var b prefix.Builder
		for k := range r.Tokens.Len() {
			b.Append(int32(splitmix.Mix(uint64(r.Tokens.At(k)))%uint64(vocab)), 1)
		}
		out[i].Tokens = b.Tokens()
	}
	return out
}

// fit reports whether all ids are below a number.
func fit(trace []prefix.Request, vocab int) bool {
	for _, r := range trace {
		for k := range r.Tokens.Len() {
			if int(r.Tokens.At(k)) >= vocab {
				return false
			}
		}
	}
	return true
}

// Trace replays requests with tokens of the model's vocabulary on a fresh model. The outputs are
// those of the trace, whatever the model chooses.
func Trace(ctx context.Context, m *krait.Model, trace []prefix.Request, o TraceOptions) (*TraceRun, error) {
	if err := o.check(trace); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &replay{m, trace, o, make([]float64, len(trace)), &TraceRun{Hits: make([]int, len(trace))}, atomic.Int64{}}
	var all sync.WaitGroup
	begun := time.Now()
	run := func(i int, due time.Time) {
		if err := r.request(ctx, i, due); err != nil {
			cancel(fmt.Errorf("request %d: %w", i+1, err))
		}
	}
	if o.Speed > 0 {
		r.arrive(ctx, &all, begun, run)
	} else {
		r.clients(ctx, &all, run)
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	out := r.out
	out.TTFT, out.Seconds = percentiles(r.ttft), time.Since(begun).Seconds()
	for _, x := range trace {
		out.Output += float64(x.Tokens.Len()-x.InputLen) / out.Seconds
	}
	return out, nil
}

// longestTrace bounds the time of a replay, in seconds.
const longestTrace = 1e8

func (o *TraceOptions) check(trace []prefix.Request) error {
	if !(o.Speed >= 0) || math.IsInf(o.Speed, 0) {
		return fmt.Errorf("speed is %g; it must be a factor above 0, or 0 for a closed loop", o.Speed)
	}
	if takes := (trace[len(trace)-1].At - trace[0].At) / o.Speed; o.Speed > 0 && takes > longestTrace {
		return fmt.Errorf("at speed %g the last request arrives after %.3g seconds: give a higher speed, or 0", o.Speed, takes)
	}
	return nil
}

// replay is a running replay.
type replay struct {
	m     *krait.Model
	trace []prefix.Request
	o     TraceOptions
	ttft  []float64 // by request, in milliseconds
	out   *TraceRun
	ended atomic.Int64
}

// arrive starts requests at their times.
func (r *replay) arrive(ctx context.Context, all *sync.WaitGroup, begun time.Time, run func(int, time.Time)) {
	for i, x := range r.trace {
		due := begun.Add(time.Duration((x.At - r.trace[0].At) / r.o.Speed * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
			all.Go(func() { run(i, due) })
		case <-ctx.Done():
			return
		}
	}
}

// clients runs a closed loop.
func (r *replay) clients(ctx context.Context, all *sync.WaitGroup, run func(int, time.Time)) {
	var next atomic.Int64
	for range r.m.Engine().Slots() {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(r.trace)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				run(int(i), time.Now())
			}
		})
	}
}

// request runs request i, and records its time to first token.
func (r *replay) request(ctx context.Context, i int, due time.Time) error {
	x := r.trace[i]
	ids := make([]int, x.Tokens.Len())
	for k := range ids {
		ids[k] = int(x.Tokens.At(k))
	}
	q := schedule.Request{
		Prompt: ids[:x.InputLen], Forced: ids[x.InputLen:],
		MaxTokens: len(ids) - x.InputLen + 1, // the last one is chosen, but not processed
		Choose:    func([]int) exec.Choice { return exec.Choice{} },
		Accept:    func(int) bool { return false },
		OnCached:  func(tokens int) { r.out.Hits[i] = tokens },
	}
	first := true
	for token, err := range r.m.Session().Scheduler().Stream(ctx, q) {
		if err != nil {
			return err
		}
		if first {
			r.ttft[i], first = token.At.Sub(due).Seconds()*1e3, false
		}
	}
	if first {
		return errors.New("it ended without a token")
	}
	if done := r.ended.Add(1); r.o.Tell != nil {
		r.o.Tell(int(done), len(r.trace))
	}
	return nil
}

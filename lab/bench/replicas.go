package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/krait-ml/krait"
)

// MeasureReplicas measures data-parallel replicas that run concurrently, each with its part of the
// batch. The longest times count. There is no roofline, since they share the machine.
func MeasureReplicas(ctx context.Context, models []*krait.Model, o Options) (*Result, error) {
	if len(models) == 1 {
		return Measure(ctx, models[0], o)
	}
	if o.Batch < len(models) {
		return nil, fmt.Errorf("a batch of %d for %d replicas: each has at least one sequence", o.Batch, len(models))
	}
	parts, errs := make([]*Result, len(models)), make([]error, len(models))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	first := 0
	for i, m := range models {
		part := o
		part.Batch, part.first, part.Bandwidth = Share(o.Batch, len(models), i), first, 0
		if first += part.Batch; i > 0 {
			part.Progress = nil // the first tells for all
		}
		all.Go(func() {
			if parts[i], errs[i] = Measure(ctx, m, part); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return join(parts, o.Batch), nil
}

// Share returns the sequences of replica i of n.
func Share(batch, n, i int) int {
	share := batch / n
	if i < batch%n {
		share++
	}
	return share
}

// join returns the result of all replicas together.
func join(parts []*Result, batch int) *Result {
	out, same := *parts[0], true
	h := sha256.New()
	for _, p := range parts {
		out.TTFT, out.Step = max(out.TTFT, p.TTFT), max(out.Step, p.Step)
		same = same && *p.Repeats
		fmt.Fprintln(h, p.Logits)
	}
	out.Batch, out.Replicas, out.Repeats = batch, len(parts), &same
	out.Logits = hex.EncodeToString(h.Sum(nil))
	out.Prefill, out.Decode = rate(batch*out.Prompt, out.TTFT), rate(batch, out.Step)
	return &out
}

// Package load puts load on a server of OpenAI's HTTP API, and measures it as its clients see it.
//
// In a closed loop, each of a number of clients sends its next request when the last one has ended.
// In an open loop, requests arrive at a mean rate (a Poisson process) or at the times of a trace,
// and their latencies count from these times.
//
// Requests depend only on the options and the seed. Token ids of a trace, as of package workload,
// become made-up words or ids of a vocabulary, different ones for each load of a sweep, so that a
// load has no prefix cache hits from the one before.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/internal/splitmix"
	"github.com/krait-ml/krait/session/prefix"
)

// Load is the arrival of requests: a closed or an open loop. At most one field is above 0.
type Load struct {
	Concurrency int     `json:"concurrency,omitempty"` // clients of a closed loop
	Rate        float64 `json:"rate,omitempty"`        // requests per second; if both are 0, requests arrive as in the trace
	// Bursts is the coefficient of variation of the gaps between arrivals by Rate, which are gamma
	// distributed; 0: 1, a Poisson process.
	Bursts float64 `json:"bursts,omitempty"`
}

// Name returns the load's name in tables.
func (l Load) Name() string {
	switch {
	case l.Concurrency > 0:
		return fmt.Sprintf("%d at once", l.Concurrency)
	case l.Rate > 0:
		return fmt.Sprintf("%g per second", l.Rate)
	}
	return "as traced"
}

// Options configure a run. Server, Trace and Loads are required.
type Options struct {
	Server    Server
	Trace     []prefix.Request // requests of each load
	Loads     []Load           // one after the other
	Vocab     int              // prompts are token ids below it, for completions only; 0: texts
	MaxTokens int              // of an answer; 0: as in the trace
	IgnoreEOS bool             // send ignore_eos, an extension of OpenAI's API
	Timeout   time.Duration    // of a request; 0: none
	Seed      uint64           // for times and texts
	Ranks     int              // of the server, for throughput per rank; 0: unknown
	Progress  func(done, all int)
	Clock     Clock // nil: the system's
}

// Clock is a source of time.
type Clock interface {
	Now() time.Time
	Sleep(context.Context, time.Duration) error // returns the context's error if that ends first
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Uniform returns a trace of n requests with equal numbers of tokens and no common prefixes.
func Uniform(n, prompt, output int) ([]prefix.Request, error) {
	const most = 1 << 30
	if n < 1 || prompt < 1 || output < 1 || n > most || prompt > most || output > most || int64(n)*int64(prompt+1) > most || prompt+output > prefix.MaxTokens {
		return nil, fmt.Errorf("%d requests of %d tokens, %d to be generated: each must be at least 1, and all prompts may have %d together", n, prompt, output, most)
	}
	var trace []prefix.Request
	var b prefix.Builder
	for i := range n {
		b.Append(int32(i*(prompt+1)), prompt)
		b.Append(most, output)
		trace = append(trace, prefix.Request{Tokens: b.Tokens(), InputLen: prompt})
	}
	return trace, nil
}

func (o *Options) check() error {
	switch {
	case len(o.Trace) == 0:
		return errors.New("the trace has no requests")
	case len(o.Loads) == 0:
		return errors.New("no load is given")
	case o.Vocab < 0 || o.Vocab == 1:
		return fmt.Errorf("the vocabulary is %d; it must be at least 2, or 0 for texts", o.Vocab)
	case o.Vocab > 0 && o.Server.Chat:
		return errors.New("chats take texts, not token ids")
	case o.MaxTokens < 0 || o.Timeout < 0 || o.Ranks < 0:
		return fmt.Errorf("%d tokens, a timeout of %v and %d ranks: none may be negative", o.MaxTokens, o.Timeout, o.Ranks)
	}
	for _, l := range o.Loads {
		if err := l.Check(); err != nil {
			return err
		}
	}
	return o.Server.check()
}

// LeastRate and MostRate bound the requests per second.
const (
	LeastRate = 1e-6
	MostRate  = 1e6
)

// Check returns an error for numbers out of range.
func (l Load) Check() error {
	if !(l.Bursts >= 0 && l.Bursts <= 100) || l.Bursts > 0 && l.Rate == 0 {
		return fmt.Errorf("gaps vary by %g times their mean; it must be from 0 to 100, and needs a rate", l.Bursts)
	}
	if l.Concurrency < 0 || l.Rate != 0 && !(l.Rate >= LeastRate && l.Rate <= MostRate) || l.Concurrency > 0 && l.Rate > 0 {
		return fmt.Errorf("a load of %d at once and %g per second: one is positive, and a rate is from %g to %g, or both are 0", l.Concurrency, l.Rate, LeastRate, MostRate)
	}
	return nil
}

// Run puts the loads on the server, one after the other. The report counts failed requests; an
// error is due to the options or the context.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r := &Report{URL: o.Server.URL, Model: o.Server.Model, Chat: o.Server.Chat, Requests: len(o.Trace), Seed: o.Seed, Ranks: o.Ranks}
	var done atomic.Int64
	for i, l := range o.Loads {
		g := &generator{Options: &o, salt: splitmix.Mix(o.Seed + uint64(i)<<32), client: o.Server.client(transport)}
		g.ended = func() {
			if n := int(done.Add(1)); o.Progress != nil {
				o.Progress(n, len(o.Loads)*len(o.Trace))
			}
		}
		var outcomes []Outcome
		var err error
		if l.Concurrency > 0 {
			outcomes, err = g.closed(ctx, l.Concurrency)
		} else {
			outcomes, err = g.open(ctx, l.Arrivals(g.Trace, g.Seed))
		}
		if err != nil {
			return nil, err
		}
		r.Loads = append(r.Loads, Sum(l, outcomes, o.Ranks))
	}
	return r, nil
}

// generator makes the requests of one load.
type generator struct {
	*Options
	salt   uint64
	client *http.Client
	ended  func() // called when a request has ended
}

// closed runs a closed loop with n clients.
func (g *generator) closed(ctx context.Context, n int) ([]Outcome, error) {
	outcomes := make([]Outcome, len(g.Trace))
	var next atomic.Int64
	var clients sync.WaitGroup
	for range min(n, len(g.Trace)) {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(g.Trace) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				outcomes[i] = g.ask(ctx, i, g.Clock.Now())
			}
		})
	}
	clients.Wait()
	return outcomes, ctx.Err()
}

// Arrivals returns the arrival times of the requests of an open loop, from its beginning: with
// exponentially distributed gaps, or as in the trace from its first request on.
func (l Load) Arrivals(trace []prefix.Request, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0))
	due := make([]time.Duration, len(trace))
	at := 0.0
	for i := range due {
		if l.Rate > 0 {
			at += l.gap(rng) / l.Rate
		} else {
			at = trace[i].At - trace[0].At
		}
		due[i] = time.Duration(math.Round(min(at, prefix.MostSeconds) * 1e9))
	}
	return due
}

// gap returns a random gap of mean 1.
func (l Load) gap(rng *rand.Rand) float64 {
	if l.Bursts == 0 || l.Bursts == 1 {
		return rng.ExpFloat64()
	}
	k := 1 / (l.Bursts * l.Bursts)
	return gamma(rng, k) / k
}

// gamma returns a gamma distributed number of shape k and scale 1 (Marsaglia and Tsang, "A simple
// method for generating gamma variables", 2000).
func gamma(rng *rand.Rand, k float64) float64 {
	if k < 1 {
		return gamma(rng, k+1) * math.Pow(rng.Float64(), 1/k)
	}
	d := k - 1.0/3
	for {
		x := rng.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v = v * v * v; v > 0 && math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// open runs an open loop.
func (g *generator) open(ctx context.Context, due []time.Duration) ([]Outcome, error) {
	outcomes := make([]Outcome, len(due))
	begin := g.Clock.Now()
	var clients sync.WaitGroup
	defer clients.Wait()
	for i, d := range due {
		at := begin.Add(d)
		if wait := at.Sub(g.Clock.Now()); wait > 0 {
			if err := g.Clock.Sleep(ctx, wait); err != nil {
				return nil, err
			}
		}
		clients.Go(func() { outcomes[i] = g.ask(ctx, i, at) })
	}
	clients.Wait()
	return outcomes, ctx.Err()
}

// ask sends request i, whose latency counts from sent.
func (g *generator) ask(ctx context.Context, i int, sent time.Time) Outcome {
	defer g.ended()
	if g.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, g.Timeout)
		defer stop()
	}
	out := Outcome{Sent: sent}
	out.Err = g.exchange(ctx, i, &out)
	out.Ended = g.Clock.Now()
	return out
}

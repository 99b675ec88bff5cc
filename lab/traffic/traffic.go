// Package traffic simulates servers under load on a virtual clock: requests arrive, wait, share
// steps, hit prefix caches and move from prefill to decode servers, without a model.
//
// What decides is the servers' own code: the scheduler ([schedule.Stepper]), admission
// ([admit.Queue]), the prefix cache's tree ([prefix.Adaptive]) and the router's choice
// ([balance.Choice]). Only times of steps and of transfers are modelled ([Clock], [Link]).
// Detokenization, HTTP and the network take no time, and a prompt's token has 4 bytes of text.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/session/admit"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/krait-ml/krait/session/schedule"
)

// Clock has the times of a server's steps, in seconds.
type Clock interface {
	// Step returns the time of a step.
	Step(z graph.Sizes) (float64, error)
	// Trial returns the time beside a step that trials of drafts take, with that many tokens: to
	// keep states before, and to replay the tokens of those that are rolled back.
	Trial(trials, tokens int) (keep, replay float64)
}

// Server is a kind of servers.
type Server struct {
	Number int // of equal servers
	Ranks  int // of each
	Limits schedule.Limits
	Queue  admit.Limits // of servers that answer requests
	Clock  Clock
	// Policy is that of the prefix cache, of Capacity bytes, for a model's costs; empty: no cache.
	Policy   string
	Capacity int64
	Model    prefix.Model
}

// Link is what states move over from a prefill server, one after the other.
type Link struct {
	Latency   float64                // seconds of each transfer
	Bandwidth float64                // bytes per second; 0: transfers take Latency
	Bytes     func(tokens int) int64 // of the state of a prompt; nil: 0
}

// Options configure a simulation. Trace, Load and Decode are required.
type Options struct {
	Trace []prefix.Request
	Load  load.Load
	Seed  uint64 // of arrivals and drafts
	// Decode answers requests, and prefills their prompts unless Prefill has servers.
	Decode, Prefill Server
	Link            Link
	// Drafts bounds the drafts per sequence and step, each right with probability Acceptance if
	// those before it are; the scheduler makes as many as pay.
	Drafts     int
	Acceptance float64
	SLO        SLO
	// Schedule gets each step as it ends; nil: nothing does.
	Schedule func(Step)
	// Progress gets the number of requests that have ended; may be nil.
	Progress func(done, all int)
}

// Step is a step of a server.
type Step struct {
	Server     string // such as decode 0
	Start, End time.Duration
	graph.Sizes
}

// SLO bounds times of a request, in seconds; 0: any.
type SLO struct {
	TTFT float64 `json:"ttft,omitempty"`
	TPOT float64 `json:"tpot,omitempty"`
	E2E  float64 `json:"e2e,omitempty"`
}

// met reports whether a request met the bounds.
func (s SLO) met(o *load.Outcome) bool {
	within := func(d time.Duration, most float64) bool { return most == 0 || d.Seconds() <= most }
	if o.Err != nil || !within(o.First.Sub(o.Sent), s.TTFT) || !within(o.Last.Sub(o.Sent), s.E2E) {
		return false
	}
	return o.Tokens < 2 || within(o.Last.Sub(o.First)/time.Duration(o.Tokens-1), s.TPOT)
}

// Report is the result of a simulation.
type Report struct {
	load.Result
	// Good is the requests that met the SLO, and Goodput their number per second.
	Good     int         `json:"good"`
	Goodput  float64     `json:"goodput_per_second"`
	Servers  []Use       `json:"servers"`
	Moved    int64       `json:"transferred_bytes,omitempty"`
	Moving   *load.Times `json:"transfer_seconds,omitempty"` // with the wait for the link
	Drafted  int64       `json:"drafts,omitempty"`
	Accepted int64       `json:"accepted_drafts,omitempty"`
	// Outcomes are those of the requests, in the order of the trace.
	Outcomes []load.Outcome `json:"-"`
}

// Use is what a server did.
type Use struct {
	Name      string  `json:"name"`
	Ranks     int     `json:"ranks"`
	Requests  int     `json:"requests"`
	Steps     int64   `json:"steps"`
	Busy      float64 `json:"busy"`          // share of the time in which steps ran
	Sequences float64 `json:"sequences"`     // of a step, on average over their time
	Room      float64 `json:"kv_room"`       // largest share of the KV cache that requests held; 0: it has no bound
	Paused    int64   `json:"paused"`        // requests paused, and
	Restarted int64   `json:"restarted"`     // those whose state was recomputed
	Hits      int64   `json:"cached_tokens"` // of prompts
	Evictions int     `json:"evictions"`     // of the prefix cache
}

// mostServers bounds the servers of a role.
const mostServers = 4096

func (o *Options) check() error {
	switch {
	case len(o.Trace) == 0:
		return errors.New("the trace has no requests")
	case o.Decode.Number < 1 || o.Prefill.Number < 0:
		return fmt.Errorf("%d servers and %d prefill servers; there must be at least 1 and 0", o.Decode.Number, o.Prefill.Number)
	case o.Decode.Number > mostServers || o.Prefill.Number > mostServers:
		return fmt.Errorf("%d servers and %d prefill servers; there may be at most %d of each", o.Decode.Number, o.Prefill.Number, mostServers)
	case !(o.Link.Latency >= 0 && o.Link.Bandwidth >= 0):
		return fmt.Errorf("a link of %g seconds and %g bytes per second: neither may be negative", o.Link.Latency, o.Link.Bandwidth)
	case o.Drafts < 0:
		return fmt.Errorf("%d drafts per step; there must be at least 0", o.Drafts)
	case !(o.Acceptance >= 0 && o.Acceptance <= 1):
		return fmt.Errorf("an acceptance of %g; it must be from 0 to 1", o.Acceptance)
	}
	for i := range o.Trace[1:] {
		if a, b := o.Trace[i].At, o.Trace[i+1].At; !(a <= b) {
			return fmt.Errorf("request %d of the trace comes at %g s, after one at %g; sort the requests by time", i+1, b, a)
		}
	}
	return o.Load.Check()
}

// Run simulates the trace. The same options give the same report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &simulation{Options: &o, outcomes: make([]load.Outcome, len(o.Trace))}
	var err error
	if s.decode, err = s.servers("decode", &o.Decode, o.Prefill.Number == 0); err != nil {
		return nil, err
	}
	if s.prefill, err = s.servers("prefill", &o.Prefill, true); err != nil {
		return nil, err
	}
	s.arrive()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return s.report(), nil
}

// report sums the outcomes.
func (s *simulation) report() *Report {
	ranks := s.Decode.Number*s.Decode.Ranks + s.Prefill.Number*s.Prefill.Ranks
	r := &Report{Result: load.Sum(s.Load, s.outcomes, ranks), Moved: s.moved, Moving: load.Percentiles(s.moving), Outcomes: s.outcomes}
	for i := range s.outcomes {
		if s.SLO.met(&s.outcomes[i]) {
			r.Good++
		}
	}
	if r.Seconds > 0 {
		r.Goodput = float64(r.Good) / r.Seconds
	}
	for _, x := range s.all() {
		r.Servers = append(r.Servers, x.used(r.Seconds))
		for _, d := range x.stepper.Load().Drafts {
			r.Drafted, r.Accepted = r.Drafted+d.Tokens, r.Accepted+d.Accepted
		}
	}
	return r
}

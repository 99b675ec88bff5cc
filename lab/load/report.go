package load

import (
	"slices"
	"time"

	"github.com/krait-ml/krait/internal/quantile"
)

// Report is the results of a run.
type Report struct {
	URL      string   `json:"url"`
	Model    string   `json:"model"`
	Chat     bool     `json:"chat"`
	Requests int      `json:"requests"` // of each load
	Seed     uint64   `json:"seed"`
	Ranks    int      `json:"ranks,omitempty"` // of the server; 0: unknown
	Loads    []Result `json:"loads"`
}

// Result is the result of one load. Tokens and times are those of successful requests.
type Result struct {
	Load
	OK       int               `json:"ok"`
	Errors   map[string]int    `json:"errors"`   // by kind
	Messages map[string]string `json:"messages"` // the first of each kind
	Seconds  float64           `json:"seconds"`  // from the first request to the last's end
	Prompt   int               `json:"prompt_tokens"`
	Cached   int               `json:"cached_tokens"`
	Tokens   int               `json:"completion_tokens"`
	Parts    int               `json:"uncounted"` // requests without usage, whose parts count as tokens
	TTFT     *Times            `json:"ttft_seconds"`
	TPOT     *Times            `json:"tpot_seconds"` // per request: time after the first token divided by the tokens after it
	Gaps     *Times            `json:"gap_seconds"`  // between parts, of all requests
	Latency  *Times            `json:"latency_seconds"`

	RequestsPerSecond float64  `json:"requests_per_second"`
	TokensPerSecond   float64  `json:"tokens_per_second"`
	PerRank           float64  `json:"tokens_per_second_per_rank,omitempty"` // 0: the ranks are unknown
	PerUser           *float64 `json:"tokens_per_second_per_user"`           // 1 divided by the median TPOT; nil: unknown
}

// Failed returns the number of failed requests.
func (r *Result) Failed() (n int) {
	for _, k := range r.Errors {
		n += k
	}
	return n
}

// Times are percentiles by the nearest rank.
type Times struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Most float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Percentiles returns those of a list, which it sorts; nil: there are no times.
func Percentiles(x []float64) *Times {
	if len(x) == 0 {
		return nil
	}
	slices.Sort(x)
	t := &Times{P50: quantile.Rank(x, 50), P95: quantile.Rank(x, 95), P99: quantile.Rank(x, 99), Most: slices.Max(x)}
	for _, v := range x {
		t.Mean += v / float64(len(x))
	}
	return t
}

// Sum returns the result of a load from the outcomes of its requests; ranks 0: unknown.
func Sum(l Load, outcomes []Outcome, ranks int) Result {
	r := Result{Load: l, Errors: map[string]int{}, Messages: map[string]string{}}
	var ttft, tpot, gaps, latency []float64
	var from, to time.Time
	for i := range outcomes {
		x := &outcomes[i]
		if from.IsZero() || x.Sent.Before(from) {
			from = x.Sent
		}
		if x.Ended.After(to) {
			to = x.Ended
		}
		if x.Err != nil {
			if r.Errors[x.Err.Kind]++; r.Errors[x.Err.Kind] == 1 {
				r.Messages[x.Err.Kind] = x.Err.Message
			}
			continue
		}
		r.OK++
		r.Prompt, r.Cached, r.Tokens = r.Prompt+x.Prompt, r.Cached+x.Cached, r.Tokens+x.Tokens
		if !x.Counted {
			r.Parts++
		}
		ttft = append(ttft, x.First.Sub(x.Sent).Seconds())
		latency = append(latency, x.Last.Sub(x.Sent).Seconds())
		gaps = append(gaps, x.Gaps...)
		if x.Parts > 1 && x.Tokens > 1 { // one part has no gaps
			tpot = append(tpot, x.Last.Sub(x.First).Seconds()/float64(x.Tokens-1))
		}
	}
	r.TTFT, r.TPOT, r.Gaps, r.Latency = Percentiles(ttft), Percentiles(tpot), Percentiles(gaps), Percentiles(latency)
	if r.Seconds = to.Sub(from).Seconds(); r.Seconds > 0 {
		r.RequestsPerSecond, r.TokensPerSecond = float64(r.OK)/r.Seconds, float64(r.Tokens)/r.Seconds
		if ranks > 0 {
			r.PerRank = r.TokensPerSecond / float64(ranks)
		}
	}
	if r.TPOT != nil && r.TPOT.P50 > 0 {
		user := 1 / r.TPOT.P50
		r.PerUser = &user
	}
	return r
}

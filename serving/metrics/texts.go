package metrics

import (
	"strconv"
	"time"
)

// Reasons why texts end. The first two are those of the API.
const (
	Stop   = "stop"
	Length = "length"
	Abort  = "abort" // the client is gone, or too slow a reader
	Failed = "error"
)

// ServeTexts adds the metrics of requests and texts.
func (m *Metrics) ServeTexts() {
	m.requests = m.counters("krait_requests_total", "Ended HTTP requests by path and status. A stream that failed after its first event has the status of its error; 499: the client disconnected.", "path", "status")
	m.ends = m.counters("krait_request_success_total", "Ended sequences (choices) by reason: stop, length, abort (the client disconnected) or error.", "finished_reason")
	for _, reason := range []string{Stop, Length, Abort, Failed} {
		m.ends.WithLabelValues(reason)
	}
	m.prompt = m.counter("krait_prompt_tokens_total", "Prompt tokens of ended sequences.")
	m.cached = m.counter("krait_prompt_tokens_cached_total", "Prompt tokens of ended sequences that hit the prefix cache.")
	m.chosen = m.counter("krait_generation_tokens_total", "Output tokens of ended sequences.")
	m.promptTokens = m.histogram("krait_request_prompt_tokens", "Prompt tokens per sequence.", sizeBuckets)
	m.chosenTokens = m.histogram("krait_request_generation_tokens", "Output tokens per sequence.", sizeBuckets)
	m.queue = m.histogram("krait_request_queue_time_seconds", "Time that a sequence spends in the queue before it gets a slot.", longBuckets)
	m.prefill = m.histogram("krait_request_prefill_time_seconds", "Time from the slot to the first token.", longBuckets)
	m.decode = m.histogram("krait_request_decode_time_seconds", "Time from the first to the last token.", longBuckets)
	m.whole = m.histogram("krait_e2e_request_latency_seconds", "Time from arrival to the end of a sequence that did not fail.", longBuckets)
	m.first = m.histogram("krait_time_to_first_token_seconds", "Time to first token, including the time in the queue.", firstBuckets)
	m.gaps = m.histogram("krait_inter_token_latency_seconds", "Time between two tokens of a sequence, one observation per gap.", gapBuckets)
	m.mean = m.histogram("krait_request_time_per_output_token_seconds", "Mean time per output token (TPOT): decode time of a sequence divided by its tokens after the first.", gapBuckets)
	m.fetched = m.counter("krait_fetched_tokens_total", "Prompt tokens whose state was fetched from a prefill server.")
	m.traveled = m.counter("krait_fetched_bytes_total", "Bytes of states and KV pages fetched from prefill servers.")
	m.fallbacks = m.counter("krait_fallbacks_total", "Prompts that this server prefilled because no prefill server could.")
	m.elsewhere = m.histogram("krait_remote_prefill_seconds", "Time from sending a prompt to a prefill server until it reports that prefill is done.", longBuckets)
	m.transfer = m.histogram("krait_transfer_seconds", "Time to fetch a prompt's state from a prefill server.", longBuckets)
}

// Request counts an answered request. Each pair of path and status is a time series.
func (m *Metrics) Request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// Gap observes the time between two tokens of a text.
func (m *Metrics) Gap(d time.Duration) { m.gaps.Observe(d.Seconds()) }

// Text is the outcome of one generated text.
type Text struct {
	Reason                 string // Stop, Length, Abort or Failed
	Prompt, Cached, Chosen int    // tokens
	// Times since the request until the text had its slot, its first and its last token, and ended;
	// 0: never.
	Began, First, Last, Ended time.Duration
	// Tokens, bytes and times of a prefill by a prefill server, and whether this server fell back to
	// prefilling the prompt itself.
	Fetched           int
	Traveled          int64
	Prefill, Transfer time.Duration
	Fallback          bool
}

// Text counts a text that ended.
func (m *Metrics) Text(t Text) {
	m.ends.WithLabelValues(t.Reason).Inc()
	m.prompt.Add(float64(t.Prompt))
	m.cached.Add(float64(t.Cached))
	m.chosen.Add(float64(t.Chosen))
	m.fetched.Add(float64(t.Fetched))
	m.traveled.Add(float64(t.Traveled))
	if t.Fetched > 0 {
		m.elsewhere.Observe(t.Prefill.Seconds())
		m.transfer.Observe(t.Transfer.Seconds())
	}
	if t.Fallback {
		m.fallbacks.Inc()
	}
	if t.Began > 0 {
		m.queue.Observe(t.Began.Seconds())
	}
	if t.First > 0 {
		m.first.Observe(t.First.Seconds())
		m.prefill.Observe((t.First - t.Began).Seconds())
		m.decode.Observe((t.Last - t.First).Seconds())
	}
	if t.First > 0 && t.Chosen > 1 {
		m.mean.Observe((t.Last - t.First).Seconds() / float64(t.Chosen-1))
	}
	if t.Reason == Stop || t.Reason == Length {
		m.whole.Observe(t.Ended.Seconds())
		m.promptTokens.Observe(float64(t.Prompt))
		m.chosenTokens.Observe(float64(t.Chosen))
	}
}

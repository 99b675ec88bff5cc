package load_test

import (
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/session/prefix"
)

// TestMetrics: what clients of a real server count is what it counts itself, and they measure
// longer times than it does, as theirs contain its.
func TestMetrics(t *testing.T) {
	counted := metrics.New()
	m, err := krait.Embedded(krait.Options{Slots: 4, PrefixCache: 64 << 20, Batches: counted.Batch, Sharding: krait.Sharding{Ranks: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := openai.New(m, openai.Options{Metrics: counted, Queue: openai.Queue{Requests: 1, Tokens: 4000}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	server := load.Server{URL: h.URL + "/v1"}
	model, err := server.FindModel(t.Context())
	if server.Model = model.ID; err != nil || model != (load.Model{ID: "tiny-mamba", Ranks: 2}) {
		t.Fatalf("%q, %v", server.Model, err)
	}
	var trace []prefix.Request // with a beginning that all share
	var b prefix.Builder
	for i := range 8 {
		b.Append(0, 64)
		b.Append(int32(1000*(i+1)), 6+i)
		trace = append(trace, prefix.Request{At: float64(i) / 1000, Tokens: b.Tokens(), InputLen: 69 + i})
	}
	var all load.Result
	var ttft, tpot, several float64
	add := func(o load.Options) load.Result {
		r, err := load.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Loads {
			all.OK, all.Prompt, all.Cached, all.Tokens = all.OK+x.OK, all.Prompt+x.Prompt, all.Cached+x.Cached, all.Tokens+x.Tokens
			if x.TTFT != nil {
				ttft += x.TTFT.Mean * float64(x.OK)
			}
			if x.TPOT != nil {
				tpot += x.TPOT.Mean * float64(x.OK)
				several += float64(x.OK)
			}
			if x.Parts > 0 || x.OK+x.Failed() != len(o.Trace) {
				t.Errorf("%+v", x)
			}
		}
		return r.Loads[len(r.Loads)-1]
	}
	add(load.Options{Server: server, Trace: trace, Vocab: m.Vocab(), MaxTokens: 9, IgnoreEOS: true, Loads: []load.Load{{Concurrency: 1}, {Concurrency: 3}}})
	chat := server
	chat.Chat = true
	add(load.Options{Server: chat, Trace: trace[:2], MaxTokens: 5, IgnoreEOS: true, Loads: []load.Load{{}}})
	if all.OK != 18 || all.Tokens != 16*9+2*5 || all.Cached == 0 {
		t.Errorf("%+v", all)
	}
	// More at once than there is room for: some are refused, and both know how many.
	full := add(load.Options{Server: server, Trace: uniform(t, 12, 20, 200), IgnoreEOS: true, Loads: []load.Load{{Concurrency: 12}}})
	large := add(load.Options{Server: server, Trace: uniform(t, 2, 20, 5000), Loads: []load.Load{{Concurrency: 1}}})
	if large.OK != 0 || large.Errors["status 400"] != 2 {
		t.Errorf("%+v", large)
	}
	value := func(text, name string) float64 {
		line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
		if line == nil {
			return 0
		}
		x, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	// An answer is counted after its end: the last ones may not be yet.
	text := ""
	for range 500 {
		text = scraped(t, h)
		if value(text, `krait_requests_total{path="/v1/completions",status="400"}`) == 2 && value(text, `krait_requests_total{path="/v1/completions",status="200"}`) == float64(all.OK-2) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if full.Failed() != full.Errors["status 429"] {
		t.Errorf("%+v", full)
	}
	for name, want := range map[string]int{
		`krait_requests_total{path="/v1/completions",status="429"}`:      full.Errors["status 429"],
		`krait_requests_total{path="/v1/completions",status="200"}`:      all.OK - 2,
		`krait_requests_total{path="/v1/chat/completions",status="200"}`: 2,
		"krait_prompt_tokens_total":                                      all.Prompt, "krait_prompt_tokens_cached_total": all.Cached, "krait_generation_tokens_total": all.Tokens,
		"krait_time_to_first_token_seconds_count": all.OK, "krait_request_time_per_output_token_seconds_count": int(several),
	} {
		if got := value(text, name); got != float64(want) {
			t.Errorf("%s is %g, clients counted %d", name, got, want)
		}
	}
	if got := value(text, "krait_time_to_first_token_seconds_sum"); !(got > 0 && got <= ttft) {
		t.Errorf("the server's first tokens took %g s, the clients' %g", got, ttft)
	}
	if got := value(text, "krait_request_time_per_output_token_seconds_sum"); !(got > 0 && tpot > 0) {
		t.Errorf("the server's tokens took %g s, the clients' %g", got, tpot)
	}
}

// scraped is what /metrics answers.
func scraped(t *testing.T, h *httptest.Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.Config.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return strings.NewReplacer("{}", "", "{,", "{").Replace(regexp.MustCompile(`,?model_name="[^"]*"`).ReplaceAllString(w.Body.String(), ""))
}

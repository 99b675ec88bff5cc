package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/metrics"
	"github.com/krait-ml/krait/serving/openai"
)

// repeating is a prompt whose end was there before.
var repeating = strings.Repeat("And the LORD said unto Moses, Go in unto Pharaoh. ", 4) + "And the LORD"

// TestSpeculate: a request selects drafts; its text is the same, its usage has OpenAI's counters of
// predictions, and the metrics count the same.
func TestSpeculate(t *testing.T) {
	counted := metrics.New()
	_, h, _ := serverOf(t, openai.Options{Metrics: counted}, krait.Options{Slots: 2, Speculate: "auto"})
	type usage struct {
		Usage struct {
			Details struct {
				Accepted int `json:"accepted_prediction_tokens"`
				Rejected int `json:"rejected_prediction_tokens"`
			} `json:"completion_tokens_details"`
		}
	}
	texts, accepted, drafted := map[string]bool{}, 0, 0
	for _, how := range []string{"", `, "speculate": "ngram"`, `, "speculate": "auto"`, `, "speculate": "off"`} {
		status, body := post(t, h, "/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 150, "temperature": 0%s}`, repeating, how))
		var a answer
		var u usage
		if err := json.Unmarshal([]byte(body), &a); err != nil || json.Unmarshal([]byte(body), &u) != nil || status != http.StatusOK {
			t.Fatalf("%d: %s", status, body)
		}
		texts[a.Choices[0].Text] = true
		d := u.Usage.Details
		// Whether others draft depends on what drafts cost on this machine.
		if off := strings.Contains(how, "off"); off && d.Accepted+d.Rejected > 0 || !strings.Contains(body, "accepted_prediction_tokens") {
			t.Errorf("%s: %+v", how, d)
		}
		accepted, drafted = accepted+d.Accepted, drafted+d.Accepted+d.Rejected
	}
	if len(texts) != 1 {
		t.Errorf("the texts are %v", texts)
	}
	r, err := http.Get(h.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var page strings.Builder
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"draft_tokens": drafted, "accepted_tokens": accepted} {
		found := regexp.MustCompile(`(?m)^krait_spec_decode_num_` + name + `_total\{kind="ngram"\} (\S+)`).FindStringSubmatch(plain(page.String()))
		if found == nil {
			t.Fatalf("no %s", name)
		}
		if got, err := strconv.ParseFloat(found[1], 64); err != nil || int(got) != want {
			t.Errorf("%s: %v, the usages have %d", name, found[1], want)
		}
	}
}

// TestSpeculateRefused: an unknown kind is refused with those of the server, and drafts where the
// server makes none.
func TestSpeculateRefused(t *testing.T) {
	_, on, _ := serverOf(t, openai.Options{}, krait.Options{Slots: 1, Speculate: "ngram"})
	_, off, _ := serverOf(t, openai.Options{}, krait.Options{Slots: 1})
	for want, status := range map[string]func() (int, string){
		`speculate: it is \"best\"; it must be one of off, auto, ngram, mtp`: func() (int, string) {
			return post(t, on, "/v1/completions", `{"prompt": "a", "speculate": "best"}`)
		},
		`speculate: it is mtp, and this server drafts with no MTP head: start it with --speculate mtp`: func() (int, string) {
			return post(t, on, "/v1/completions", `{"prompt": "a", "speculate": "mtp"}`)
		},
		`speculate: it is ngram, and this server makes no drafts: start it with --speculate auto`: func() (int, string) {
			return post(t, off, "/v1/completions", `{"prompt": "a", "speculate": "ngram"}`)
		},
	} {
		if code, body := status(); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %s", code, body, want)
		}
	}
	if code, body := post(t, off, "/v1/completions", `{"prompt": "a", "speculate": "off", "max_tokens": 2}`); code != http.StatusOK || strings.Contains(body, "prediction") {
		t.Errorf("%d %s", code, body)
	}
}

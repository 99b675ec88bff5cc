package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/krait-ml/krait/session/prefix"
)

// excerpts are in the formats that are published, and written for this test.
var excerpts = map[string]string{
	"sharegpt": `[{"id": "a_0", "conversations": [{"from": "human", "value": "eight by"}, {"from": "gpt", "value": "four"}, {"from": "human", "value": "again"}, {"from": "gpt", "value": "12 bytes long"}, {"from": "human", "value": "unanswered"}]},
		{"id": "b_0", "conversations": [{"from": "gpt", "value": "greeting"}, {"from": "human", "value": "eight by"}, {"from": "gpt", "value": "x"}]}, {"id": "c", "conversations": []}]`,
	"lmsys": `{"conversation_id": "1", "model": "m", "conversation": [{"content": "eight by", "role": "user"}, {"content": "four", "role": "assistant"}], "turn": 1, "language": "English", "redacted": false}
{"conversation_id": "2", "model": "m", "conversation": [{"content": "eight by", "role": "user"}, {"content": "other ones", "role": "assistant"}], "turn": 1}
`,
	"swe-agent": `{"environment": "e", "trajectory": [{"action": "ls", "observation": "a.py", "thought": "look"}], "history": [{"role": "system", "content": "you are an agent", "agent": "primary"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant", "content": "ls"}, {"role": "user", "content": "a.py"}, {"role": "assistant", "content": "submit"}], "info": {}}
{"instance_id": "i", "trajectory": [{"role": "system", "system_prompt": "you are an agent", "text": null}, {"role": "user", "text": "fix"}, {"role": "ai", "text": "submit"}]}
`,
	"mooncake": `{"timestamp": 1000, "input_length": 1030, "output_length": 5, "hash_ids": [46, 47, 48]}
{"timestamp": 1500, "input_length": 600, "output_length": 7, "hash_ids": [46, 2000000000000]}
`,
	"burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n118.5,GPT-4,417,276,693,Conversation log\n",
	"azure":    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
}

// TestRead: requests have the lengths, times and shared beginnings of each format.
func TestRead(t *testing.T) {
	type want struct {
		lengths string // prompt/output of each, in the order of the excerpt's sessions
		shared  int    // tokens that the first two begin with
	}
	for format, w := range map[string]want{
		"sharegpt":  {"2/1 5/4 4/1", 2},
		"lmsys":     {"2/1 2/3", 2},
		"swe-agent": {"12/1 14/2 5/2", 12},
		"mooncake":  {"1030/5 600/7", 512},
		"burstgpt":  {"472/18 417/276", 0},
		"azure":     {"374/44 396/109", 0},
	} {
		// A conversation is over before the next begins.
		trace, err := Read(format, strings.NewReader(excerpts[format]), Options{Rate: 1e-9, Pause: 1})
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		var lengths []string
		for _, r := range trace {
			lengths = append(lengths, fmt.Sprintf("%d/%d", r.InputLen, r.Tokens.Len()-r.InputLen))
		}
		if got := strings.Join(lengths, " "); got != w.lengths {
			t.Errorf("%s: %s, want %s", format, got, w.lengths)
			continue
		}
		shared := 0
		for a, b := trace[0].Input(), trace[1].Input(); shared < min(a.Len(), b.Len()) && a.At(shared) == b.At(shared); {
			shared++
		}
		if shared != w.shared {
			t.Errorf("%s: %d tokens are shared, want %d", format, shared, w.shared)
		}
		if gap := trace[1].At - trace[0].At; format == "mooncake" && gap != 0.5 || format == "burstgpt" && gap != 113.5 || format == "azure" && (gap < 4.3145 || gap > 4.3147) {
			t.Errorf("%s: the second comes after %g seconds", format, gap)
		}
	}
	// A limit takes the first sessions. The system prompt is the same text in both trajectories.
	if trace, err := Read("swe-agent", strings.NewReader(excerpts["swe-agent"]), Options{Sessions: 1}); err != nil || len(trace) != 2 {
		t.Errorf("%d requests: %v", len(trace), err)
	}
	trace, err := Read("swe-agent", strings.NewReader(excerpts["swe-agent"]), Options{Rate: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	tree := prefix.NewTree(prefix.Model{CacheBytes: 1}, 1<<40, 0)
	tree.Serve(trace[0])
	if hit := tree.Serve(trace[2]); hit != 4 {
		t.Errorf("%d tokens of the second trajectory are the first's, want those of the system prompt", hit)
	}
}

// TestReadBad: what is wrong is said.
func TestReadBad(t *testing.T) {
	for want, c := range map[string][2]string{
		"unknown format":           {"parquet", ""},
		"after 1 conversations":    {"sharegpt", `[{"conversations": []}`},
		"it has no requests":       {"sharegpt", "[]"},
		"conversation 2: invalid":  {"lmsys", `{"conversation": []} x`},
		"request 1: 5 tokens in 2": {"mooncake", `{"input_length": 5, "hash_ids": [1, 2]}`},
		"its columns are":          {"azure", "a,b\n1,2\n"},
		"it has no header":         {"burstgpt", ""},
		"line 2: \"noon\" is no":   {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n"},
		"line 2: it has too few":   {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n"},
		"line 2: strconv":          {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,x\n"},
		"line 3: it is before":     {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n0,2,3\n"},
		"line 2: it is before the first request, or has more": {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,99999999999,3\n"},
	} {
		if _, err := Read(c[0], strings.NewReader(c[1]), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %q: %v, want %s", c[0], c[1], err, want)
		}
	}
}

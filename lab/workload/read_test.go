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
		left    Left
	}
	for format, w := range map[string]want{
		"sharegpt":  {"2/1 5/4 4/1", 2, Left{Conversations: 1, Messages: 1}},
		"lmsys":     {"2/1 2/3", 2, Left{}},
		"swe-agent": {"5/1 7/2 5/2", 5, Left{}},
		"mooncake":  {"1030/5 600/7", 512, Left{}},
		"burstgpt":  {"472/18 417/276", 0, Left{Requests: 1}},
		"azure":     {"374/44 396/109", 0, Left{}},
	} {
		// A conversation is over before the next begins.
		trace, left, err := Read(format, strings.NewReader(excerpts[format]), Options{Rate: 1e-9, Pause: 1})
		if err != nil || left != w.left {
			t.Errorf("%s: %v, left out are %v, want %v", format, err, left, w.left)
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
	if trace, _, err := Read("swe-agent", strings.NewReader(excerpts["swe-agent"]), Options{Sessions: 1}); err != nil || len(trace) != 2 {
		t.Errorf("%d requests: %v", len(trace), err)
	}
	trace, _, err := Read("swe-agent", strings.NewReader(excerpts["swe-agent"]), Options{Rate: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	tree := prefix.NewTree(prefix.Model{CacheBytes: 1}, 1<<40, 0)
	tree.Serve(trace[0])
	if hit := tree.Serve(trace[2]); hit != 4 {
		t.Errorf("%d tokens of the second trajectory are the first's, want those of the system prompt", hit)
	}
}

// TestReadOdd: marks of byte order, ends of lines as on Windows, spaces, times with zones, calls of
// tools, blank lines and long ones are read.
func TestReadOdd(t *testing.T) {
	const azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	long := strings.Repeat("eight by", 1<<20)
	for text, want := range map[[2]string]string{
		{"lmsys", "\ufeff" + strings.ReplaceAll(excerpts["lmsys"], "\n", "\r\n\r\n")}:                                                                                 "2/1 2/3",
		{"sharegpt", "\ufeff\r\n " + excerpts["sharegpt"] + "\r\n"}:                                                                                                   "2/1 5/4 4/1",
		{"azure", "\ufeff" + strings.ReplaceAll(azure, "\n", "\r\n") + "\r\n\"2023-11-16 18:15:46.68\",\"3\", 4 \r\n"}:                                                "3/4",
		{"azure", azure + "2024-05-10 00:00:00.009930+00:00,3,4\n2024-05-10T00:00:01Z,5,6\n"}:                                                                         "3/4 5/6",
		{"swe-agent", `{"history": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"f": 1}]}]}`}:                                             "1/3",
		{"swe-agent", `{"messages": [{"role": "user", "content": [{"text": "12345"}, {"type": "text", "text": "67\\n8"}]}, {"role": "assistant", "content": "ls"}]}`}: "3/1",
		{"swe-agent", `{"messages": [{"role": "user", "content": [{"text": "1"}, {"url": "image"}]}, {"role": "assistant", "content": "ls"}]}`}:                       "9/1",
		{"burstgpt", "timestamp,request tokens,response tokens\n1.5,4.0,2\n"}:                                                                                         "4/2",
		{"lmsys", `{"conversation": [{"role": "user", "content": "` + long + `"}, {"role": "model", "content": "b"}]}`}:                                               "2097152/1",
	} {
		trace, left, err := Read(text[0], strings.NewReader(text[1]), Options{Rate: 1e-9, Pause: 1})
		var lengths []string
		for _, r := range trace {
			lengths = append(lengths, fmt.Sprintf("%d/%d", r.InputLen, r.Tokens.Len()-r.InputLen))
		}
		if got := strings.Join(lengths, " "); err != nil || got != want || left.Requests > 0 {
			t.Errorf("%s %.100q: %s, %v, %v, want %s", text[0], text[1], got, left, err, want)
		}
	}
}

// TestReadBad: what is wrong is said.
func TestReadBad(t *testing.T) {
	const azure, mooncake = "TIMESTAMP,ContextTokens,GeneratedTokens\n", `{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1]}`
	for want, c := range map[string][2]string{
		"unknown format":                           {"parquet", ""},
		"compressed by gzip; decompress":           {"sharegpt", "\x1f\x8b\x08\x00"},
		"a Parquet file; convert":                  {"lmsys", "PAR1\x15\x04"},
		"UTF-16; convert":                          {"azure", "\xff\xfeT\x00"},
		"after 1 conversations the list":           {"sharegpt", `[{"conversations": []}`},
		"more after the list of 1":                 {"sharegpt", `[{"conversations": []}] []`},
		"it has no requests":                       {"sharegpt", "[]"},
		"without an answer: 1); is it":             {"sharegpt", `[{"messages": [{"from": "human", "value": "a"}]}]`},
		"conversation 2 is not JSON: ":             {"lmsys", `{"conversation": []} x`},
		"conversation 1: conversation is a JSON s": {"lmsys", `{"conversation": "a"}`},
		"conversation 2: it is a JSON number":      {"sharegpt", `[{"conversations": []}, 2]`},
		"conversation 2: the file ends inside it":  {"lmsys", `{"conversation": []}` + "\n" + `{"conversation": [`},
		"request 1: 5 tokens in 2":                 {"mooncake", `{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1, 2]}`},
		"request 2: it must have":                  {"mooncake", mooncake + `{"timestamp": 0, "input_length": 5, "hash_ids": [1]}`},
		"request 2: its timestamp is -500":         {"mooncake", mooncake + strings.Replace(mooncake, "0", "-500", 1)},
		"request 2: its output_length is -5":       {"mooncake", mooncake + strings.Replace(mooncake, `h": 5, "h`, `h": -5, "h`, 1)},
		"request 2: the file ends":                 {"mooncake", mooncake + mooncake[:20]},
		"its columns are":                          {"azure", "a,b\n1,2\n"},
		"it is empty; its first line":              {"burstgpt", ""},
		"line 1 is not CSV: ":                      {"burstgpt", "a\"b"},
		"line 5 is not CSV: ":                      {"azure", azure + "1,2,3\n\n2,2,3\n3,\"2\"2,3\n"},
		"line 2: \"noon\" is no":                   {"azure", azure + "noon,1,2\n"},
		"line 2: \"NaN\" is no":                    {"azure", azure + "NaN,1,2\n"},
		"line 2: \"Inf\" is no":                    {"azure", azure + "Inf,1,2\n"},
		"line 2: \"-1\" is no":                     {"azure", azure + "-1,1,2\n"},
		"line 2: it has too few":                   {"azure", azure + "1,2\n"},
		"line 2: \"x\" is not a number of":         {"azure", azure + "1,2,x\n"},
		"line 2: \"-3\" is not a number of":        {"azure", azure + "1,-3,2\n"},
		"line 4: it is before":                     {"azure", azure + "1,2,3\n\n0,2,3\n"},
		"line 2: \"99999999999\" is not":           {"azure", azure + "1,99999999999,3\n"},
	} {
		if _, _, err := Read(c[0], strings.NewReader(c[1]), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %q: %v, want %s", c[0], c[1], err, want)
		}
	}
}

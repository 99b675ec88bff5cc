package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// TestRandomPipelines checks random combinations of components, with the ids
// and the text that Hugging Face's Rust library 0.23.2 gives for them.
// They hold rules to which no published tokenizer comes near.
func TestRandomPipelines(t *testing.T) {
	file, err := os.Open("testdata/random.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	pipelines, cases := 0, 0
	for lines.Scan() {
		var line struct {
			Tokenizer json.RawMessage
			Cases     []goldenCase
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		tok, err := Parse(line.Tokenizer)
		if err != nil {
			t.Errorf("%s: %v", line.Tokenizer, err)
			continue
		}
		failed := false
		report := func(format string, args ...any) { failed = true; t.Errorf(format, args...) }
		for _, c := range line.Cases {
			checkEncode(t, tok, c, report)
			checkDecode(tok, c, c.IDsSpecial, report)
			checkStream(t, tok, c.IDsSpecial, true)
			cases++
		}
		if failed {
			t.Logf("in %s", line.Tokenizer)
		}
		pipelines++
	}
	if err := lines.Err(); err != nil || pipelines == 0 {
		t.Fatalf("%d pipelines: %v", pipelines, err)
	}
	t.Logf("%d pipelines, %d cases", pipelines, cases)
}

package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadGeneration(t *testing.T) {
	dir := t.TempDir()
	if g, err := ReadGeneration(dir); err != nil || g.EOS != nil || g.Temperature != 0 {
		t.Errorf("no file: %+v, %v", g, err)
	}
	for text, check := range map[string]func(Generation, error) bool{
		`{"eos_token_id": [2, 5], "temperature": 0.7}`: func(g Generation, err error) bool {
			return err == nil && len(g.EOS) == 2 && g.EOS[1] == 5 && g.Temperature == 0
		},
		`{"do_sample": true}`: func(g Generation, err error) bool {
			return err == nil && g.Temperature == 1 && g.TopK == 50 && g.TopP == 0 && g.EOS == nil
		},
		`{"do_sample": true, "temperature": 0.6, "top_k": 0, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2}`: func(g Generation, err error) bool {
			return err == nil && g.Temperature == 0.6 && g.TopK == 0 && g.TopP == 0.9 && g.MinP == 0.05 && g.RepetitionPenalty == 1.2
		},
		`{"do_sample": true, "temperature": -1}`: func(_ Generation, err error) bool {
			return err != nil && strings.Contains(err.Error(), "temperature is -1; it must be a number above 0")
		},
		`{"do_sample": true, "min_p": 1.5}`: func(_ Generation, err error) bool {
			return err != nil && strings.Contains(err.Error(), "min_p is 1.5; it must be a number from 0 to 1")
		},
		`{"do_sample": true, "min_p": null}`: func(g Generation, err error) bool { return err == nil && g.MinP == 0 },
		`{"eos_token_id": "x"}`:              func(_ Generation, err error) bool { return err != nil },
		`[`:                                  func(_ Generation, err error) bool { return err != nil },
	} {
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if g, err := ReadGeneration(dir); !check(g, err) {
			t.Errorf("%s: %+v, %v", text, g, err)
		}
	}
}

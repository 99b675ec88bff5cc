package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "block.dot")
	var out strings.Builder
	if err := run(&out, picture); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"%y %y_state = selective_scan %x %delta %A %B %C %state %seg : f32[t 8/1], f32[s 8/1 4]\n",
		"token 0: [ 1.243  0.215  0.000  2.662 13.897  1.058  0.786  0.000]\n",
		"token 4: [-0.000  0.000  1.863  0.117  0.137 -0.000 -0.204  1.895]\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if text, err := os.ReadFile(picture); err != nil || !strings.Contains(string(text), "selective_scan") {
		t.Errorf("no picture: %v", err)
	}
}

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Peer is a built llama.cpp with models that Krait has, too: bin/ holds its programs,
// gguf/NAME-TYPE.gguf a model, hf/NAME-TYPE/ the folder that it was made from.
type Peer struct{ dir string }

// PeerName is what the peer's results are by.
const PeerName = "llama.cpp"

const (
	single  = "llama-bench"         // measures one sequence
	batched = "llama-batched-bench" // and this many
)

// OpenPeer finds the peer's programs.
func OpenPeer(dir string) (*Peer, error) {
	for _, name := range []string{single, batched} {
		path := filepath.Join(dir, "bin", name)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("%s is no program: %s is to be a folder with a built llama.cpp in bin/, its models in gguf/ and the same for Krait in hf/", path, dir)
		}
	}
	return &Peer{dir}, nil
}

// Folder is a model as Krait opens it.
func (p *Peer) Folder(model string) string { return filepath.Join(p.dir, "hf", model) }

// file is a model as the peer opens it, which calls 8-bit blocks q8_0.
func (p *Peer) file(model string) string {
	if name, ok := strings.CutSuffix(model, "-q8"); ok {
		model = name + "-q8_0"
	}
	return filepath.Join(p.dir, "gguf", model+".gguf")
}

// Models lists the models that both have; where some are named, these, and it is an
// error if one of the two lacks one. Left is what only Krait has.
func (p *Peer) Models(named []string) (list, left []string, err error) {
	for _, name := range named {
		for _, path := range []string{filepath.Join(p.Folder(name), "config.json"), p.file(name)} {
			if _, err := os.Stat(path); err != nil {
				return nil, nil, fmt.Errorf("model %s: there is no %s; both Krait and the peer need it", name, path)
			}
		}
	}
	if len(named) > 0 {
		return named, nil, nil
	}
	found, err := filepath.Glob(filepath.Join(p.Folder("*"), "config.json"))
	if err != nil {
		return nil, nil, err
	}
	for _, path := range found {
		name := filepath.Base(filepath.Dir(path))
		if _, err := os.Stat(p.file(name)); err != nil {
			left = append(left, name)
		} else {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return nil, left, fmt.Errorf("%s has no model for both: there is to be a folder hf/NAME-TYPE and beside it gguf/NAME-TYPE.gguf", p.dir)
	}
	return list, left, nil
}

// one measures a sequence: tokens per second of the prompt, and of what follows.
func (p *Peer) one(ctx context.Context, model string, o *PairedOptions) (prompt, decode float64, err error) {
	text, err := p.run(ctx, single, "-m", p.file(model), "-t", strconv.Itoa(o.Threads), "-p", strconv.Itoa(o.Prompt), "-n", strconv.Itoa(o.Tokens), "-r", "1", "-o", "jsonl")
	if err != nil {
		return 0, 0, err
	}
	err = eachLine(text, func(line []byte) error {
		var r struct {
			Prompt  int       `json:"n_prompt"`
			Samples []float64 `json:"samples_ts"`
		}
		if err := json.Unmarshal(line, &r); err != nil || len(r.Samples) == 0 {
			return err
		}
		if r.Prompt > 0 {
			prompt = r.Samples[0]
		} else {
			decode = r.Samples[0]
		}
		return nil
	})
	if err == nil && (prompt <= 0 || decode <= 0) {
		err = errors.New("its output has no speeds")
	}
	return prompt, decode, err
}

// many measures a batch: the tokens per second of all sequences after their prompts.
func (p *Peer) many(ctx context.Context, model string, o *PairedOptions) (decode float64, err error) {
	each, on := o.each()
	args := []string{"-m", p.file(model), "-t", strconv.Itoa(o.Threads), "-tb", strconv.Itoa(o.Threads), "-c", strconv.Itoa(o.Batch * (each + on + 8)),
		"-b", "2048", "-ub", "512", "-npp", strconv.Itoa(each), "-ntg", strconv.Itoa(on), "-npl", strconv.Itoa(o.Batch), "--output-format", "jsonl"}
	if o.noRepack(model) {
		args = append(args, "--no-repack")
	}
	text, err := p.run(ctx, batched, args...)
	if err != nil {
		return 0, err
	}
	err = eachLine(text, func(line []byte) error {
		var r struct {
			Speed float64 `json:"speed_tg"`
		}
		err := json.Unmarshal(line, &r)
		decode = max(decode, r.Speed)
		return err
	})
	if err == nil && decode <= 0 {
		err = errors.New("its output has no speed")
	}
	return decode, err
}

// noRepack: llama.cpp v0.5.0 crashes on several sequences of the first Mamba where it lays
// weights out anew.
func (o *PairedOptions) noRepack(model string) bool {
	return strings.HasPrefix(model, "mamba-") && slices.ContainsFunc([]string{"-f16", "-q8", "-q8_0"}, func(s string) bool { return strings.HasSuffix(model, s) })
}

// run runs a program and returns its output; its last words are the error.
func (p *Peer) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, filepath.Join(p.dir, "bin", program), args...)
	var out, words bytes.Buffer
	c.Stdout, c.Stderr = &out, &words
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		list := strings.Split(strings.TrimSpace(words.String()), "\n")
		return nil, fmt.Errorf("%s: %w: %.200s", program, err, list[len(list)-1])
	}
	return out.Bytes(), nil
}

// eachLine calls f for the lines that are JSON.
func eachLine(text []byte, f func(line []byte) error) error {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("{")) {
			if err := f(line); err != nil {
				return fmt.Errorf("its output cannot be read: %w", err)
			}
		}
	}
	return nil
}

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

// Peer is a folder with a build of llama.cpp and models for both programs: bin/ has its programs,
// gguf/NAME-TYPE.gguf a model, and hf/NAME-TYPE/ the checkpoint that it was made from. Without that
// checkpoint Krait opens the same file.
type Peer struct{ dir string }

// PeerName is the peer's name in results.
const PeerName = "llama.cpp"

const (
	single  = "llama-bench"         // measures one sequence
	batched = "llama-batched-bench" // measures a batch
)

// OpenPeer finds the peer's programs.
func OpenPeer(dir string) (*Peer, error) {
	for _, name := range []string{single, batched} {
		path := filepath.Join(dir, "bin", name)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("%s is not a program: %s must be a folder with llama.cpp's programs in bin/, its models in gguf/ and the same models for Krait in hf/", path, dir)
		}
	}
	return &Peer{dir}, nil
}

// Folder returns the path of a model for Krait: its folder, or the peer's file if there is none.
func (p *Peer) Folder(model string) string {
	folder := filepath.Join(p.dir, "hf", model)
	if _, err := os.Stat(folder); err != nil {
		if _, err := os.Stat(p.file(model)); err == nil {
			return p.file(model)
		}
	}
	return folder
}

// file returns the path of a model for the peer, which calls q8 q8_0.
func (p *Peer) file(model string) string {
	if name, ok := strings.CutSuffix(model, "-q8"); ok {
		model = name + "-q8_0"
	}
	return filepath.Join(p.dir, "gguf", model+".gguf")
}

// Models returns the models that both have, or the named ones, which both must have. left are the
// models that only Krait has.
func (p *Peer) Models(named []string) (list, left []string, err error) {
	for _, name := range named {
		for _, path := range []string{p.Folder(name), p.file(name)} {
			if _, err := os.Stat(path); err != nil {
				return nil, nil, fmt.Errorf("model %s: %s is missing; both Krait and the peer need it", name, path)
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
		return nil, left, fmt.Errorf("%s has no model for both: it needs a folder hf/NAME-TYPE and a file gguf/NAME-TYPE.gguf", p.dir)
	}
	return list, left, nil
}

// one measures one sequence, in tokens per second of prefill and decode.
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
		err = errors.New("no speeds in its output")
	}
	return prompt, decode, err
}

// many measures a batch, in decoded tokens per second of all sequences.
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
		err = errors.New("no speed in its output")
	}
	return decode, err
}

// noRepack reports whether to turn repacking off: with it, llama.cpp v0.5.0 crashes on batches of
// Mamba-1.
func (o *PairedOptions) noRepack(model string) bool {
	return strings.HasPrefix(model, "mamba-") && slices.ContainsFunc([]string{"-f16", "-q8", "-q8_0"}, func(s string) bool { return strings.HasSuffix(model, s) })
}

// run runs a program and returns its output. An error has the last line of its standard error.
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

// eachLine calls f for each line of JSON.
func eachLine(text []byte, f func(line []byte) error) error {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("{")) {
			if err := f(line); err != nil {
				return fmt.Errorf("cannot parse its output: %w", err)
			}
		}
	}
	return nil
}

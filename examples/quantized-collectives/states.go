package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/lab/agreement"
)

// stateCodecs are the rows of the table of states.
var stateCodecs = []string{"scaled16", "int8", "e4m3", "e5m2", "int4", "int8/128", "int4/16", "int8,conv=int8"}

// crossing is the token of a window after which its state is encoded and decoded once: half.
const crossing = 256

// states writes a model's table of state codecs. The state of each window is saved to a file and
// loaded in the middle of the window.
func states(b *strings.Builder, dir string, text []byte, tokens, _ int) error {
	base, err := open(dir, 1, "")
	if err != nil {
		return err
	}
	ids, size, err := cut(base, text, tokens)
	if err := cmp.Or(err, base.Close()); err != nil {
		return err
	}
	windows, perToken := len(ids)/(2*crossing), float64(size)/float64(len(ids))
	fmt.Fprintf(b, "\n### %s, %d windows of %d tokens\n\n", nameOf(dir), windows, 2*crossing)
	fmt.Fprintln(b, "| state codec | bytes of a state | top-1 % | top-5 unordered % | top-5 ordered % | bits per byte |\n|---|---:|---:|---:|---:|---:|")
	var want [][5]int
	for _, text := range append([]string{""}, stateCodecs...) {
		size, got, bits, err := crossed(dir, text, ids, windows)
		if err != nil {
			return err
		}
		if text == "" {
			want, text = got, "none"
		}
		a := agreement.Of(got, want)
		fmt.Fprintf(b, "| %s | %d | %.2f | %.2f | %.2f | %.6f |\n", text, size, 100*a.Top1, 100*a.Top5Unordered, 100*a.Top5Ordered, bits/perToken/float64(len(got)))
	}
	return nil
}

// crossed runs the windows, each as a sequence that is saved and loaded once.
func crossed(dir, codec string, ids []int, windows int) (size int64, tops [][5]int, bits float64, err error) {
	o := krait.Options{Slots: 1, StateCodec: codec}
	open := func() (*krait.Model, error) {
		if dir == "" {
			return krait.Embedded(o)
		}
		return krait.Open(dir, o)
	}
	m, err := open()
	if err != nil {
		return 0, nil, 0, err
	}
	defer m.Close()
	p, err := m.Engine().Codecs(codec)
	if err != nil {
		return 0, nil, 0, err
	}
	if size = m.Engine().StateBytes(); p != nil {
		size = p.StateBytes()
	}
	s, err := m.NewSequence()
	if err != nil {
		return 0, nil, 0, err
	}
	defer s.Close()
	ctx := context.Background()
	for w := range windows {
		window := ids[w*2*crossing:][:2*crossing]
		var file bytes.Buffer
		if err := s.Reset(); err != nil {
			return 0, nil, 0, err
		}
		if _, err := s.Step(ctx, window[:crossing]...); err != nil {
			return 0, nil, 0, err
		}
		if err := s.Save(&file); err != nil {
			return 0, nil, 0, err
		}
		if err := s.Load(&file); err != nil {
			return 0, nil, 0, err
		}
		for i := crossing; i+1 < len(window); i++ {
			logits, err := s.Step(ctx, window[i])
			if err != nil {
				return 0, nil, 0, err
			}
			tops = append(tops, agreement.TopFive(logits))
			bits += surprise(logits, window[i+1])
		}
	}
	return size, tops, bits, nil
}

// surprise is how many bits a token is worth.
func surprise(logits []float32, token int) float64 {
	most, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		most = max(most, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	return (math.Log(sum) + most - float64(logits[token])) / math.Ln2
}

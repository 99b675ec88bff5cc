package checkpoint

import (
	"math"
	"strings"
	"sync"

	"github.com/krait-ml/krait/checkpoint/gguf"
)

// Mixture is the formats of the matrices of a GGUF file, as llama.cpp's names mean them, but for
// its exceptions for eight experts and for shared keys.
type Mixture struct {
	Base gguf.Type
	file uint32 // general.file_type
	// Some is the format of attn_v, attn_qkv and ffn_down in the first and the last eighth of the
	// layers and every third between; F32: they have Base.
	Some gguf.Type
	// First is the format of ffn_down in the first eighth of the layers; F32: it has Base.
	First gguf.Type
	// Importance has the weights of columns of a tensor of the file, or nil; nil: there are none.
	Importance func(tensor string, matrices, cols int) ([]float32, error)
}

// Weighted is the mixture with weights of columns, which llama.cpp's differ with, too: ffn_down of
// IQ4 needs no more bits, that of Q4_0 and Q5_0 in the first eighth of the layers has a minimum.
func (m Mixture) Weighted(importance func(tensor string, matrices, cols int) ([]float32, error)) Mixture {
	m.Importance = importance
	switch m.Base {
	case gguf.Q4_0:
		m.First = gguf.Q4_1
	case gguf.Q5_0:
		m.First = gguf.Q5_1
	default:
		m.First = gguf.F32
	}
	return m
}

// Mixtures are the mixtures that [Checkpoint.GGUF] writes, by name.
var Mixtures = map[string]Mixture{
	"f32": {Base: gguf.F32, file: 0}, "f16": {Base: gguf.F16, file: 1}, "bf16": {Base: gguf.BF16, file: 32}, "q8_0": {Base: gguf.Q8_0, file: 7},
	"q4_0": {Base: gguf.Q4_0, file: 2}, "q5_0": {Base: gguf.Q5_0, file: 8}, "q6_k": {Base: gguf.Q6_K, file: 18},
	"q4_k_m": {Base: gguf.Q4_K, file: 15, Some: gguf.Q6_K}, "q5_k_m": {Base: gguf.Q5_K, file: 17, Some: gguf.Q6_K},
	"iq4_nl": {Base: gguf.IQ4_NL, file: 25, First: gguf.Q5_K}, "iq4_xs": {Base: gguf.IQ4_XS, file: 30, First: gguf.Q5_K},
}

// narrower are the formats of rows that are no whole number of a format's blocks of 256.
var narrower = map[gguf.Type]gguf.Type{gguf.Q4_K: gguf.Q5_0, gguf.Q5_K: gguf.Q5_1, gguf.Q6_K: gguf.Q8_0, gguf.IQ4_XS: gguf.IQ4_NL}

// fitting is the format, or one that it stands for, for rows of some elements.
func fitting(t gguf.Type, cols int) gguf.Type {
	for f := t.DType().Format(); f != nil && cols%f.Elems != 0; f = t.DType().Format() {
		var ok bool
		if t, ok = narrower[t]; !ok {
			return gguf.F16
		}
	}
	return t
}

// mix chooses the formats of those matrices that have the mixture's base, and notes how many no
// blocks fit.
func (e *ggufExport) mix() {
	m := e.mixture
	all, seen := map[string]int{}, map[string]int{}
	head, wide, matrices := "token_embd.weight", 0, 0
	for _, w := range e.out.Tensors {
		all[kindOf(w.Tensor.Name)]++
		if w.Tensor.Name == "output.weight" {
			head = w.Tensor.Name
		}
	}
	for i := range e.out.Tensors {
		t := &e.out.Tensors[i].Tensor
		kind := kindOf(t.Name)
		layer, n := seen[kind], all[kind]
		if seen[kind]++; t.Type != m.Base || !m.Base.DType().Quantized() {
			continue
		}
		switch down := strings.HasPrefix(kind, "ffn_down"); {
		case t.Name == head && m.Base != gguf.Q8_0:
			t.Type = gguf.Q6_K
		case m.First != 0 && down && layer < n/8:
			t.Type = m.First
		case m.Some != 0 && (down || kind == "attn_v.weight" || kind == "attn_qkv.weight") && moreBits(layer, n):
			t.Type = m.Some
		}
		t.Type = fitting(t.Type, t.Shape[len(t.Shape)-1])
		e.types[t.Name] = t.Type
		if matrices++; !t.Type.DType().Quantized() {
			wide++
		}
	}
	if wide > 0 {
		e.note("%d of %d matrices are in f16: their rows are not a multiple of 32, the least block of 8 bits and fewer", wide, matrices)
	}
}

// kindOf is the name of a tensor in its layer.
func kindOf(name string) string {
	_, rest, ok := ggufLayer(name)
	if !ok {
		return name
	}
	return rest
}

// moreBits reports whether layer i of n is one whose matrices matter more.
func moreBits(i, n int) bool { return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 }

// Loss is what rounding matrices to blocks takes from them.
type Loss struct {
	mu           sync.Mutex
	squares, off float64
}

// Relative is the root of the mean square error, over that of the numbers.
func (l *Loss) Relative() float64 {
	return math.Sqrt(l.off / max(l.squares, math.SmallestNonzeroFloat64))
}

// Add counts numbers and what they became. Several goroutines may call it.
func (l *Loss) Add(from, rounded []float32) {
	var squares, off float64
	for i, v := range from {
		squares += float64(v) * float64(v)
		off += float64(v-rounded[i]) * float64(v-rounded[i])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.squares, l.off = l.squares+squares, l.off+off
}

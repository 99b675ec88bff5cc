package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/ordered"
)

// tensors lists what is written, in the order of layers.
func (e *ggufExport) tensors() {
	outer := e.outer()
	reverse := map[string]ggufName{}
	for _, names := range []map[string]ggufName{e.table.blocks, e.table.mtp} {
		for theirs, n := range names {
			if slices.Contains(e.not, theirs) {
				continue
			}
			if old, ok := reverse[n.name]; !ok || len(theirs) < len(old.name) && n.how != ggufJoined {
				reverse[n.name] = ggufName{theirs, n.how}
			}
		}
	}
	for _, name := range e.weights.Names() {
		if e.Copied(name) || slices.Contains(e.Unused, name) || e.Model.Skips(name) != "" && !e.ofMTP(name) {
			continue
		}
		if theirs, ok := outer[name]; ok {
			e.tensor(theirs, ggufPlain, []string{name})
			continue
		}
		layer, rest, ok := e.block(name)
		if strings.HasSuffix(rest, ".A_log") {
			rest = strings.TrimSuffix(rest, "_log")
		}
		if n, known := reverse[rest]; ok && known {
			e.tensor(fmt.Sprintf("blk.%d.%s", layer, n.name), n.how, []string{name})
			continue
		}
		if under, packed := strings.CutSuffix(rest, "input_linear.weight"); ok && packed {
			for i, half := range []string{"gate.weight", "up.weight"} {
				e.half(fmt.Sprintf("blk.%d.%s", layer, reverse[under+half].name), name, i)
			}
			continue
		}
		if under, fused := strings.CutSuffix(rest, "experts.gate_up_proj"); ok && fused {
			for i, half := range []string{"gate_proj.weight", "up_proj.weight"} {
				e.half(fmt.Sprintf("blk.%d.%s", layer, reverse[under+"experts.#."+half].name), name, i)
			}
			continue
		}
		if under, fused := strings.CutSuffix(rest, "experts.down_proj"); ok && fused {
			e.tensor(fmt.Sprintf("blk.%d.%s", layer, reverse[under+"experts.#.down_proj.weight"].name), ggufPlain, []string{name})
			continue
		}
		if ok && strings.HasSuffix(rest, "in_proj_qkvz.weight") {
			e.ungrouped(layer, name)
			continue
		}
		expert := expertIn(rest)
		n, known := reverse[strings.Replace(rest, "."+expert+".", ".#.", 1)]
		if !ok || !known || expert == "" {
			e.fail("tensor %s has no place in GGUF's %s", name, e.arch)
			continue
		}
		into := fmt.Sprintf("blk.%d.%s", layer, n.name)
		e.packed[into] = append(e.packed[into], name)
	}
	for into, names := range e.packed {
		slices.SortFunc(names, func(a, b string) int {
			x, _ := strconv.Atoi(expertIn(a))
			y, _ := strconv.Atoi(expertIn(b))
			return cmp.Compare(x, y)
		})
		e.tensor(into, ggufExperts, names)
	}
	e.untie()
	ordered.Sort(e.out.Tensors, func(a, b Written[gguf.Tensor]) int {
		return cmp.Or(cmp.Compare(ggufOrder(a.Tensor.Name), ggufOrder(b.Tensor.Name)), cmp.Compare(a.Tensor.Name, b.Tensor.Name))
	})
}

// untie writes a head of its own where it is the embedding times another factor.
func (e *ggufExport) untie() {
	if e.scales == nil || slices.ContainsFunc(e.out.Tensors, func(w Written[gguf.Tensor]) bool { return w.Tensor.Name == "output.weight" }) {
		return
	}
	a, b := e.scales("token_embd.weight", 1), e.scales("output.weight", 1)
	if !slices.Equal(a, b) {
		e.tensor("output.weight", ggufPlain, []string{e.embeddings()})
	}
}

func ggufOrder(name string) int {
	if layer, _, ok := ggufLayer(name); ok {
		return layer + 1
	}
	if name == "token_embd.weight" {
		return 0
	}
	return math.MaxInt
}

// ofMTP reports whether a tensor is of an MTP head that is written.
func (e *ggufExport) ofMTP(name string) bool {
	return e.mtp && strings.HasPrefix(name, "mtp.")
}

// block is the block of a tensor of the checkpoint, and its name there. An MTP head is the block
// after the model's.
func (e *ggufExport) block(name string) (layer int, rest string, ok bool) {
	if !e.ofMTP(name) {
		return layerOf(strings.TrimPrefix(name, e.table.prefix))
	}
	name = strings.TrimPrefix(name, "mtp.")
	if layer, rest, ok = layerOf(name); ok {
		return e.Model.Layers + layer, rest, true
	}
	return e.Model.Layers, name, true
}

// layerOf takes layers.N. apart.
func layerOf(name string) (layer int, rest string, ok bool) {
	number, rest, ok := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
	layer, err := strconv.Atoi(number)
	return layer, rest, ok && err == nil && strings.HasPrefix(name, "layers.")
}

// expertIn returns the expert's number in a tensor's name, or "".
func expertIn(name string) string {
	_, rest, ok := strings.Cut(name, "experts.")
	number, _, _ := strings.Cut(rest, ".")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return ""
	}
	return number
}

// tensor adds one of the file, made of some of the checkpoint.
func (e *ggufExport) tensor(name string, how ggufHow, from []string) {
	a, _ := e.weights.Look(from[0])
	shape := slices.Clone(a.Shape)
	switch how {
	case ggufConv:
		shape = []int{shape[0], shape[len(shape)-1]}
	case ggufFlat:
		if groups := 1; strings.HasSuffix(name, "ssm_norm.weight") {
			for _, p := range e.out.Metadata {
				if n, ok := p.Value.(uint32); ok && p.Key == e.arch+".ssm.group_count" {
					groups = int(n)
				}
			}
			shape = []int{groups, shape[0] / groups}
		} else {
			shape = []int{shape[0], 1}
		}
	case ggufExperts:
		shape = append([]int{len(from)}, shape...)
	}
	t := gguf.Tensor{Name: name, Type: e.typeOf(name, how, shape), Shape: shape}
	layer, rest, ok := ggufLayer(name)
	if !ok {
		rest = name
	}
	sources := from
	if d := e.table.delta; rest == "ssm_out.weight" && d.values != d.keys {
		sources = nil
	}
	e.out.Tensors = append(e.out.Tensors, Written[gguf.Tensor]{t, sources, func() ([]byte, error) { return e.data(layer, rest, t, from) }})
	if strings.HasSuffix(from[0], ".A_log") && !e.mixture.Base.DType().Quantized() {
		e.keepRates(layer, from[0])
	}
}

// half adds the first or the second half of the rows of a matrix, or of each of several.
func (e *ggufExport) half(name, from string, which int) {
	a, _ := e.weights.Look(from)
	shape := slices.Clone(a.Shape)
	at := len(shape) - 2
	shape[at] /= 2
	t := gguf.Tensor{Name: name, Type: e.typeOf(name, ggufPlain, shape), Shape: shape}
	e.out.Tensors = append(e.out.Tensors, Written[gguf.Tensor]{t, []string{from}, func() ([]byte, error) {
		x, err := e.Tensor(from)
		if err != nil {
			return nil, err
		}
		n := 2 // halves
		if at > 0 {
			n *= shape[0]
		}
		var out []byte
		line := len(x.Data) / n
		for i := which; i < n; i += 2 {
			out = append(out, x.Data[i*line:][:line]...)
		}
		return e.converted(graph.Array{DType: x.DType, Shape: shape, Data: out, From: x.From}, t, 0)
	}})
}

// typeOf is the format of a tensor.
func (e *ggufExport) typeOf(name string, how ggufHow, shape []int) gguf.Type {
	switch {
	case len(shape) < 2, how == ggufConv, how == ggufFlat, how == ggufExact, how == ggufRow, !strings.HasSuffix(name, ".weight"):
		return gguf.F32
	}
	return e.mixture.Base // or what mix chooses
}

// data makes a tensor of the file.
func (e *ggufExport) data(layer int, rest string, t gguf.Tensor, from []string) ([]byte, error) {
	var out []byte
	for i, name := range from {
		a, err := e.Tensor(name)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, ".A_log") {
			a = graph.ArrayOf(rates(a.Float32s()), a.Shape...)
		}
		if e.table.blocks[rest].how == ggufCentred || e.table.mtp[rest].how == ggufCentred || e.table.centred && rest == "output_norm.weight" {
			a = plus(a, 1)
		}
		if e.scales != nil {
			if by := e.scales(rest, a.Shape[0]); by != nil {
				a = scaled(a, by)
			}
		}
		if line := len(a.Data) / max(1, a.Shape[0]); e.table.delta.tiles(rest, a.Shape[0], line).width > 0 {
			a.Data = e.table.delta.order(a.Data, e.table.delta.tiles(rest, a.Shape[0], line), false)
		}
		b, err := e.converted(a, t, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if n := e.table.headsOf(layer, rest, a.Shape[0]); n > 0 {
			b = turn(b, a.Shape[0], n, false)
		}
		out = append(out, b...)
	}
	return out, nil
}

package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/models"
)

// ggufKeep is the key under which krait convert writes the config.json of the folder: for
// what GGUF has no key.
const ggufKeep = "krait.config"

// ggufConfig turns metadata into a config.
type ggufConfig struct {
	*models.Config
	file  *gguf.File
	arch  string
	table *ggufArch
	lists map[string][]int
	errs  []error
	kept  bool // there is a config.json, in which the metadata overwrite what they know
}

// ggufConfigOf is the config of a GGUF file, and its architecture.
func ggufConfigOf(f *gguf.File) (*models.Config, *ggufArch, error) {
	name, err := f.String("general.architecture")
	if err != nil {
		return nil, nil, err
	}
	a, ok := ggufArchs[name]
	if !ok {
		return nil, nil, fmt.Errorf("%s: general.architecture is %q; Krait knows %s", f.Name(), name, strings.Join(slices.Sorted(maps.Keys(ggufArchs)), ", "))
	}
	text, err := f.String(ggufKeep)
	if err != nil {
		return nil, nil, err
	}
	g := &ggufConfig{file: f, arch: name, table: &a, lists: map[string][]int{}, kept: text != ""}
	if text == "" {
		text = "{}"
	}
	if g.Config, err = models.ParseConfig(f.Name(), []byte(text)); err != nil {
		return nil, nil, fmt.Errorf("the key %s is damaged: %w", ggufKeep, err)
	}
	g.read()
	return g.Config, &a, errors.Join(append(g.errs, g.Err())...)
}

// read sets the keys that the architectures share, and those of its own.
func (g *ggufConfig) read() {
	t, ok := g.file.Tensor("token_embd.weight")
	if !ok || len(t.Shape) != 2 {
		g.wrong("token_embd.weight", "there must be a tensor of that name with two axes")
		return
	}
	g.set("vocab_size", t.Shape[0])
	g.set("hidden_size", g.int("embedding_length", 1))
	g.set("num_hidden_layers", g.int("block_count", 0))
	if n, ok := g.file.Value(g.arch + ".nextn_predict_layers"); ok && g.count(n) > 0 {
		g.set("num_hidden_layers", max(0, g.int("block_count", 0)-g.count(n))) // what follows is an MTP head, and plain decoding ignores it
		if g.table.mtp != nil {
			g.set("mtp_num_hidden_layers", g.count(n))
			g.Set("mtp_use_dedicated_embeddings", g.any("nextn.embed_tokens.weight") || g.any("nextn.shared_head_head.weight"))
		}
	}
	g.table.layers = int(g.Value("num_hidden_layers").(float64))
	if n := g.Value("num_hidden_layers").(float64); n > models.MaxLayers {
		g.wrong(g.arch+".block_count", fmt.Sprintf("is %.0f; the most that Krait reads is %d", n, models.MaxLayers))
		return
	}
	g.Set("tie_word_embeddings", !g.has("output.weight"))
	g.Set("hidden_act", "silu")
	g.def("bos_token_id", g.ids("bos"))
	g.def("eos_token_id", g.ids("eos", "eot"))
	if g.table.kernel == "" {
		g.table.kernel = "ssm.conv_kernel"
	}
	g.table.width = g.int(g.table.kernel, 1)
	g.table.heads = func(layer int) [2]int {
		return [2]int{g.layer("attention.head_count", layer), g.layer("attention.head_count_kv", layer)}
	}
	for _, key := range []string{".rope.scaling.type", ".expert_group_used_count"} {
		v, ok := g.file.Value(g.arch + key)
		if ok && v != "none" && v != uint32(0) && v != uint32(1) {
			g.wrong(g.arch+key, fmt.Sprintf("is %s, which Krait does not support", brief(v)))
		}
	}
	if len(g.errs) == 0 {
		for _, k := range g.table.keys {
			if k.read != nil {
				k.read(g)
			}
		}
	}
}

func (g *ggufConfig) set(key string, n int) { g.Set(key, float64(n)) }

// def sets what the metadata do not say, where a config.json is not there to say it.
func (g *ggufConfig) def(key string, v any) {
	if !g.kept {
		g.Set(key, v)
	}
}

func (g *ggufConfig) has(tensor string) bool {
	_, ok := g.file.Tensor(tensor)
	return ok
}

// any reports whether a block has a tensor.
func (g *ggufConfig) any(rest string) bool {
	return slices.ContainsFunc(g.file.Names(), func(name string) bool {
		_, r, ok := ggufLayer(name)
		return ok && r == rest
	})
}

func (g *ggufConfig) wrong(key, text string) {
	g.errs = append(g.errs, fmt.Errorf("%s: %s: %s", g.Path, key, text))
}

// ids are tokens that have a role.
func (g *ggufConfig) ids(roles ...string) []any {
	out := []any{}
	for _, role := range roles {
		if n, ok := ggufInt(g.value("tokenizer.ggml." + role + "_token_id")); ok && !slices.Contains(out, any(float64(n))) {
			out = append(out, float64(n))
		}
	}
	return out
}

func (g *ggufConfig) value(key string) any {
	v, _ := g.file.Value(key)
	return v
}

// count is a number of the metadata as an int; -1 where it is none that fits.
func (g *ggufConfig) count(v any) int {
	n, ok := ggufInt(v)
	if !ok {
		return -1
	}
	return n
}

func ggufInt(v any) (int, bool) {
	n := int64(-1)
	switch v := v.(type) {
	case uint8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case int8:
		n = int64(v)
	case int16:
		n = int64(v)
	case int32:
		n = int64(v)
	case int64:
		n = v
	}
	return int(n), n >= 0 && n <= models.MaxDim
}

// mostLayers bounds a list with a number for each layer: there may be more than are read.
const mostLayers = 2 * models.MaxLayers

// ggufInts is a list of numbers.
func ggufInts(v any) ([]int, bool) {
	var out []int
	add := func(v any) bool {
		n, ok := ggufInt(v)
		out = append(out, n)
		return ok
	}
	ok := false
	switch v := v.(type) {
	case []int32:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n int32) bool { return !add(n) })
	case []uint32:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n uint32) bool { return !add(n) })
	case []int64:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n int64) bool { return !add(n) })
	case []uint64:
		ok = len(v) <= mostLayers && !slices.ContainsFunc(v, func(n uint64) bool { return !add(n) })
	}
	return out, ok
}

// int reads a number of the architecture, of at least lowest, that must be there.
func (g *ggufConfig) int(key string, lowest int) int {
	key = g.arch + "." + key
	v, ok := g.file.Value(key)
	if !ok {
		g.wrong(key, "the metadata lack it")
		return lowest
	}
	n, ok := ggufInt(v)
	if !ok || n < lowest {
		g.wrong(key, fmt.Sprintf("is %v; it must be a whole number of at least %d", brief(v), lowest))
		return lowest
	}
	return n
}

// optional is int where it need not be there.
func (g *ggufConfig) optional(key string, def int) int {
	if _, ok := g.file.Value(g.arch + "." + key); !ok {
		return def
	}
	return g.int(key, 0)
}

// layers reads a number for each layer, or one for all.
func (g *ggufConfig) layers(key string) []int {
	if list, ok := g.lists[key]; ok {
		return list
	}
	n := int(g.Value("num_hidden_layers").(float64))
	v, _ := g.file.Value(g.arch + "." + key)
	list, ok := ggufInts(v)
	switch {
	case !ok:
		list = slices.Repeat([]int{g.int(key, 0)}, n)
	case len(list) < n:
		g.wrong(g.arch+"."+key, fmt.Sprintf("has %d numbers, and there are %d layers", len(list), n))
		list = make([]int, n)
	}
	g.lists[key] = list[:n]
	return list[:n]
}

// layer is that of one of them.
func (g *ggufConfig) layer(key string, i int) int {
	if list := g.layers(key); i >= 0 && i < len(list) {
		return list[i]
	}
	return 0
}

// same is what all layers have that have any.
func (g *ggufConfig) same(key string) int {
	list := slices.DeleteFunc(slices.Clone(g.layers(key)), func(n int) bool { return n == 0 })
	if len(list) == 0 {
		return 0
	}
	for _, n := range list {
		if n != list[0] {
			g.wrong(g.arch+"."+key, fmt.Sprintf("layers have %d and %d; Krait's families have as many in all layers", list[0], n))
			return list[0]
		}
	}
	return list[0]
}

// float reads a number that must be there; one of 32 bits is what its decimal says.
func (g *ggufConfig) float(key string) float64 {
	key = g.arch + "." + key
	switch v, _ := g.file.Value(key); v := v.(type) {
	case float32:
		f, _ := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		return f
	case float64:
		return v
	}
	g.wrong(key, "the metadata lack it, or it is no float")
	return 1
}

// scale is float, and 1 where it is not there.
func (g *ggufConfig) scale(key string) float64 {
	if _, ok := g.file.Value(g.arch + "." + key); !ok {
		return 1
	}
	return g.float(key)
}

// brief is a value for an error text.
func brief(v any) string {
	if v != nil && reflect.TypeOf(v).Kind() == reflect.Slice {
		return "a list"
	}
	text := fmt.Sprint(v)
	return text[:min(len(text), 40)]
}

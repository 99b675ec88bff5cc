package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// Config is a config.json. A family reads its keys through the typed getters, which collect
// errors. Keys that no getter has read are unknown.
type Config struct {
	Path   string
	values map[string]any
	asked  map[string]bool
	errs   []error
	quant  *Quantization
}

// ReadConfig reads dir/config.json, and ModelOpt's file beside it.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := files.Read(path, files.Config)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no config.json; a model is a Hugging Face folder with config.json and model.safetensors", dir)
	}
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	return c, c.readQuantFile(func() ([]byte, error) { return files.Read(filepath.Join(dir, QuantFile), files.Config) })
}

// ParseConfig reads the text of a config.json; path is used in errors. Bare
// Infinity, which Python writes, is accepted; a NaN is not.
func ParseConfig(path string, data []byte) (*Config, error) {
	c := &Config{Path: path, asked: map[string]bool{}}
	if err := json.Unmarshal(quoteSpecials(data), &c.values); err != nil {
		return nil, fmt.Errorf("%s: not a JSON object: %w", path, err)
	}
	if c.values == nil {
		return nil, fmt.Errorf("%s: not a JSON object: null", path)
	}
	for _, key := range c.keys() {
		if hasNaN(c.values[key]) {
			return nil, fmt.Errorf("%s: %s is NaN", path, key)
		}
	}
	return c, nil
}

// specials are the numbers that Python's json writes bare and the strings that
// stand for them once read. The NUL keeps them apart from text.
var specials = []struct{ bare, quoted string }{
	{"-Infinity", `"\u0000-Infinity"`}, {"Infinity", `"\u0000Infinity"`}, {"NaN", `"\u0000NaN"`},
}

func quoteSpecials(data []byte) []byte {
	var out bytes.Buffer
	inString := false
scan:
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '"':
			inString = !inString
		case inString && c == '\\' && i+1 < len(data):
			out.WriteByte(c)
			i++
			c = data[i]
		case !inString && (c == '-' || c == 'I' || c == 'N'):
			for _, s := range specials {
				if bytes.HasPrefix(data[i:], []byte(s.bare)) {
					out.WriteString(s.quoted)
					i += len(s.bare) - 1
					continue scan
				}
			}
		}
		out.WriteByte(c)
	}
	return out.Bytes()
}

func hasNaN(v any) bool {
	switch v := v.(type) {
	case string:
		return v == "\x00NaN"
	case []any:
		return slices.ContainsFunc(v, hasNaN)
	case map[string]any:
		return v["__float__"] == "NaN" || slices.ContainsFunc(slices.Collect(maps.Values(v)), hasNaN)
	}
	return false
}

func (c *Config) keys() []string { return slices.Sorted(maps.Keys(c.values)) }

func (c *Config) get(key string) (any, bool) {
	c.asked[key] = true
	v, ok := c.values[key]
	return v, ok && v != nil
}

// Either is the key that is there, or the first where both are or none is.
func (c *Config) Either(key, other string) string {
	c.Without(key, other)
	if _, ok := c.get(key); ok {
		return key
	}
	if _, ok := c.get(other); ok {
		return other
	}
	return key
}

func (c *Config) fail(key string, v any, want string) {
	text, err := json.Marshal(v)
	if err != nil {
		text = fmt.Append(nil, v)
	}
	c.errs = append(c.errs, fmt.Errorf("%s: %s is %s; it must be %s", c.Path, key, bytes.ReplaceAll(text, []byte(`\u0000`), nil), want))
}

// number reads a finite number or an infinity, in each form that writers use.
func number(v any) (float64, bool) {
	if m, ok := v.(map[string]any); ok {
		if s, ok := m["__float__"].(string); ok && len(m) == 1 {
			v = "\x00" + s
		}
	}
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		return map[string]float64{"\x00Infinity": math.Inf(1), "\x00-Infinity": math.Inf(-1)}[v], strings.HasSuffix(v, "Infinity") && v[0] == 0
	}
	return 0, false
}

// MaxDim bounds every size in a config, far above any model and far below overflow.
const MaxDim = 1 << 28

// maxCount bounds what is built one by one, such as experts and heads with matrices;
// MaxLayers layers, each of which takes a millisecond and 50 KB.
const (
	maxCount  = 1 << 16
	MaxLayers = 1 << 12
)

// Int reads a size: an integer of at least lowest.
func (c *Config) Int(key string, def, lowest int) int { return c.integer(key, def, lowest, MaxDim) }

// Count reads how many there are of something that is built one by one.
func (c *Config) Count(key string, def, lowest int) int {
	return c.integer(key, def, lowest, maxCount)
}

// Layers reads how many blocks there are.
func (c *Config) Layers(def int) int {
	return c.integer("num_hidden_layers", def, 0, MaxLayers)
}

func (c *Config) integer(key string, def, lowest, highest int) int {
	v, ok := c.get(key)
	if !ok {
		return def
	}
	f, ok := v.(float64)
	if !ok || f != math.Trunc(f) || f < float64(lowest) || f > float64(highest) {
		c.fail(key, v, fmt.Sprintf("an integer from %d to %d", lowest, highest))
		return def
	}
	return int(f)
}

// null reports whether the key is there and null, which is not always its default.
func (c *Config) null(key string) bool {
	v, ok := c.values[key]
	return ok && v == nil
}

// expanded is a width times the factor of a key, 2 where it is absent.
func (c *Config) expanded(key string, width int) int {
	return int(min(c.Positive(key, 2)*float64(width), MaxDim))
}

// Rank reads the rank of dt: a number, or "auto" for a sixteenth of the width,
// rounded up.
func (c *Config) Rank(key string, hidden int) int {
	auto := (hidden + 15) / 16
	if v, _ := c.get(key); v == "auto" {
		return auto
	}
	return c.Int(key, auto, 1)
}

// Positive reads a finite number above zero.
func (c *Config) Positive(key string, def float64) float64 {
	v, ok := c.get(key)
	if !ok {
		return def
	}
	f, ok := number(v)
	if !ok || f <= 0 || math.IsInf(f, 0) {
		c.fail(key, v, "a number above 0")
		return def
	}
	return f
}

// Share reads a number from 0 to 1, 0 where it is absent.
func (c *Config) Share(key string) float64 {
	v, ok := c.get(key)
	if !ok {
		return 0
	}
	f, ok := number(v)
	if !ok || !(f >= 0 && f <= 1) {
		c.fail(key, v, "a number from 0 to 1")
		return 0
	}
	return f
}

// Range reads two numbers, the lower first, either of which may be infinite; it
// is [0, ∞] where the key is absent.
func (c *Config) Range(key string) [2]float64 {
	def := [2]float64{0, math.Inf(1)}
	v, ok := c.get(key)
	if !ok {
		return def
	}
	list, _ := v.([]any)
	if len(list) == 2 {
		lo, ok1 := number(list[0])
		hi, ok2 := number(list[1])
		if ok1 && ok2 && lo <= hi {
			return [2]float64{lo, hi}
		}
	}
	c.fail(key, v, "two numbers, the lower first")
	return def
}

// Scale reads a factor, 1 where it is absent.
func (c *Config) Scale(key string) float64 {
	if v, ok := c.get(key); ok {
		if f, ok := number(v); ok && !math.IsInf(f, 0) {
			return f
		}
		c.fail(key, v, "a number")
	}
	return 1
}

// Scales reads n factors, which are 1 where the key is absent.
func (c *Config) Scales(key string, n int) []float64 {
	out := slices.Repeat([]float64{1}, n)
	v, ok := c.get(key)
	if !ok {
		return out
	}
	list, _ := v.([]any)
	good := len(list) == n
	for i := range min(n, len(list)) {
		f, ok := number(list[i])
		out[i], good = f, good && ok && !math.IsInf(f, 0)
	}
	if !good {
		c.fail(key, v, fmt.Sprintf("%d numbers", n))
	}
	return out
}

// Indices reads a list of layers of n.
func (c *Config) Indices(key string, n int) []int {
	v, ok := c.get(key)
	if !ok {
		return nil
	}
	var out []int
	list, good := v.([]any)
	for _, x := range list {
		f, ok := x.(float64)
		good = good && ok && f == math.Trunc(f) && f >= 0 && f < float64(n)
		out = append(out, int(f))
	}
	if !good {
		c.fail(key, v, fmt.Sprintf("a list of layers, 0 to %d", n-1))
	}
	return out
}

// Kinds reads a list of n words, each one of those given; nil where it is absent.
func (c *Config) Kinds(key string, n int, words ...string) []string {
	v, ok := c.get(key)
	if !ok {
		return nil
	}
	var out []string
	list, good := v.([]any)
	for _, x := range list {
		s, _ := x.(string)
		good = good && slices.Contains(words, s)
		out = append(out, s)
	}
	if !good || len(out) != n {
		c.fail(key, v, fmt.Sprintf("%d times one of %s", n, strings.Join(words, ", ")))
	}
	return out
}

// Rotary reads the base of the rotary embedding and the share of a head that is
// turned, where older and newer writers put them.
func (c *Config) Rotary(theta, share float64) (base, part float64) {
	base, part = c.Positive("rope_theta", theta), c.Positive("partial_rotary_factor", share)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		v, ok := c.get(key)
		if !ok {
			continue
		}
		m, ok := v.(map[string]any)
		sub := &Config{Path: c.Path + ": " + key, values: m, asked: map[string]bool{}}
		kinds := map[string]string{"default": "default"}
		sub.OneOf("rope_type", "default", kinds)
		sub.OneOf("type", "default", kinds)
		sub.Without("mrope_section", "mrope_interleaved") // positions of text are alike in all sections
		base, part = sub.Positive("rope_theta", base), sub.Positive("partial_rotary_factor", part)
		if !ok {
			c.fail(key, v, "an object or null")
		}
		for _, k := range sub.Unknown() {
			sub.fail(k, m[k], "absent: Krait has no scaled rotary embedding")
		}
		c.errs = append(c.errs, sub.errs...)
	}
	if part > 1 {
		c.fail("partial_rotary_factor", part, "at most 1")
		part = 1
	}
	return base, part
}

// every tells layers apart by i % period == offset.
func (c *Config) every(prefix string, period, offset int) func(i int) bool {
	period = c.Int(prefix+"_period", period, 1)
	offset = c.Int(prefix+"_offset", offset, 0)
	if offset >= period {
		c.fail(prefix+"_offset", offset, "below "+prefix+"_period")
	}
	return func(i int) bool { return i%period == offset }
}

// Bool reads true or false.
func (c *Config) Bool(key string, def bool) bool {
	v, ok := c.get(key)
	if !ok {
		return def
	}
	b, ok := v.(bool)
	if !ok {
		c.fail(key, v, "true or false")
	}
	return b
}

// OneOf reads a string that names one of the options and returns what it stands for.
func (c *Config) OneOf(key, def string, options map[string]string) string {
	v, ok := c.get(key)
	if !ok {
		return options[def]
	}
	s, _ := v.(string)
	out, ok := options[s]
	if !ok {
		c.fail(key, v, "one of "+strings.Join(slices.Sorted(maps.Keys(options)), ", ")+" (Krait has no other)")
	}
	return out
}

// Tokens reads a token id or a list of them; null and absent give none.
func (c *Config) Tokens(key string) []int {
	v, ok := c.get(key)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var ids []int
	for _, x := range list {
		f, ok := x.(float64)
		if !ok || f != math.Trunc(f) || f < 0 || f > MaxDim {
			c.fail(key, v, "a token id or a list of them")
			return nil
		}
		ids = append(ids, int(f))
	}
	return ids
}

// Without lists keys that have no effect on inference.
func (c *Config) Without(keys ...string) {
	for _, k := range keys {
		c.asked[k] = true
	}
}

// Refuse lists keys that would change the result and that Krait does not
// support: any value but null, false, 0 and empty is an error.
func (c *Config) Refuse(keys ...string) {
	for _, k := range keys {
		v, ok := c.get(k)
		if list, is := v.([]any); is && len(list) == 0 {
			ok = false
		}
		if m, is := v.(map[string]any); is && len(m) == 0 {
			ok = false
		}
		if ok && v != false && v != 0.0 && v != "" {
			c.fail(k, v, "absent: Krait does not support it")
		}
	}
}

// dtype is the format of the weights by torch_dtype, which newer writers call
// dtype; f32 where neither is there.
func (c *Config) dtype() graph.DType {
	c.Without("dtype", "torch_dtype")
	for _, key := range []string{"dtype", "torch_dtype"} {
		if _, ok := c.get(key); ok {
			name := c.OneOf(key, "float32", map[string]string{"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f32", "auto": "f32"})
			if d, ok := graph.ParseDType(name); ok {
				return d
			}
		}
	}
	return graph.F32
}

// ModelType is the model_type key.
func (c *Config) ModelType() string {
	v, _ := c.get("model_type")
	s, _ := v.(string)
	return s
}

// Unknown lists the keys that no getter has read, sorted.
func (c *Config) Unknown() []string {
	return slices.DeleteFunc(c.keys(), func(k string) bool { return c.asked[k] })
}

// common marks what every config of transformers may carry.
func (c *Config) common() {
	c.Without("architectures", "auto_map", "transformers_version", "_name_or_path", "_commit_hash", "name_or_path", "model_type",
		"initializer_range", "use_cache", "return_dict", "output_hidden_states", "output_attentions", "torchscript",
		"use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward", "id2label", "label2id", "num_labels", "problem_type",
		"task_specific_params", "prefix", "tokenizer_class", "finetuning_task", "cross_attention_hidden_size", "is_decoder",
		"decoder_start_token_id", "sep_token_id", "pad_token_id", "bos_token_id", "eos_token_id",
		// Defaults of generation, which transformers moved to generation_config.json.
		"max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature",
		"top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
		"bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
		"forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens")
	c.quantized()
	c.Refuse("is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "pruned_heads")
}

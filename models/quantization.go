package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
)

// QuantMethod is what quantization_config calls blocks in safetensors, so that others
// refuse the folder and do not take the bytes for weights.
const QuantMethod = "krait_q8"

// QuantFile is where ModelOpt says how it quantized a folder, beside config.json.
const QuantFile = "hf_quant_config.json"

const quantKey = "quantization_config"

// InBlocks says in the config that matrices of the checkpoint are in 8-bit blocks.
func (c *Config) InBlocks() {
	c.Set(quantKey, map[string]any{"quant_method": QuantMethod, "bits": 8.0, "block_size": float64(graph.BlockLen)})
}

// InFP8 says in the config that matrices of the checkpoint are in FP8, in blocks of some rows and
// columns, but for those of the modules that are listed.
func (c *Config) InFP8(block int, excluded []string) {
	list := []any{}
	for _, m := range excluded {
		list = append(list, m)
	}
	size := float64(block)
	c.Set(quantKey, map[string]any{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
		"weight_block_size": []any{size, size}, "modules_to_not_convert": list})
}

// Quantization says how the weights of a published folder are quantized, as far as its tensors do
// not.
type Quantization struct {
	Method   string   // of quantization_config: fp8, gptq, …
	Block    [2]int   // rows and columns with one scale, of FP8 in blocks; 0 if the config says none
	Group    int      // columns with one scale, of 4-bit integers; -1: the whole row; 0: not said
	Offset   int      // that is added to stored zeros, of GPTQ
	Excluded []string // patterns of modules that are left in their floats
}

// Quantization is how the config says that weights are quantized; nil if it does not, and for
// Krait's own blocks. The config must have been read.
func (c *Config) Quantization() *Quantization { return c.quant }

// quantMethods read what a method says. Sources: quantizers of transformers
// (utils/quantization_config.py), compressed-tensors (quantization/quant_config.py), AutoGPTQ
// (quantization/config.py), AutoAWQ (models/_config.py), and vLLM's modelopt.py, which reads both
// of ModelOpt's forms.
var quantMethods = map[string]func(c *quantConfig, q *Quantization){
	"fp8": func(c *quantConfig, q *Quantization) {
		c.oneOf("fmt", "e4m3", "e4m3", "float8_e4m3fn")
		q.Block = c.block("weight_block_size")
		q.Excluded = c.patterns("modules_to_not_convert")
	},
	"modelopt": func(c *quantConfig, q *Quantization) {
		algo := strings.ToUpper(c.oneOf("quant_algo", "", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION"))
		if algo == "FP8_PB_WO" || algo == "MIXED_PRECISION" {
			q.Block = [2]int{128, 128}
		}
		q.Excluded = append(c.patterns("exclude_modules"), c.patterns("ignore")...)
	},
	"compressed-tensors": func(c *quantConfig, q *Quantization) {
		c.oneOf("format", "float-quantized", "float-quantized", "naive-quantized", "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision")
		q.Excluded = c.patterns("ignore")
		c.groups(q)
	},
	"gptq": func(c *quantConfig, q *Quantization) {
		c.oneOf("bits", "", "4")
		q.Offset = 1
		format := "checkpoint_format"
		if c.values[format] == nil {
			format = "format"
		}
		if c.oneOf(format, "gptq", "gptq", "gptq_v2") == "gptq_v2" {
			q.Offset = 0
		}
		q.Group = c.group("group_size")
	},
	"awq": func(c *quantConfig, q *Quantization) {
		c.oneOf("bits", "4", "4")
		c.oneOf("version", "gemm", "gemm")
		q.Group = c.group("group_size")
		q.Excluded = c.patterns("modules_to_not_convert")
	},
	"mxfp4": func(c *quantConfig, q *Quantization) { q.Excluded = c.patterns("modules_to_not_convert") },
}

// quantConfig reads the entries of quantization_config.
type quantConfig struct {
	*Config
	values map[string]any
}

// quantized reads how weights are quantized.
func (c *Config) quantized() {
	v, ok := c.get(quantKey)
	if !ok {
		return
	}
	values, _ := v.(map[string]any)
	if nested, ok := values["quantization"].(map[string]any); ok { // as in ModelOpt's own file
		values = maps.Clone(nested)
		values["quant_method"] = "modelopt"
	}
	q := quantConfig{c, values}
	methods := slices.Sorted(maps.Keys(quantMethods))
	method := q.text("quant_method")
	if method == QuantMethod {
		return
	}
	if strings.HasPrefix(method, "modelopt") { // modelopt_fp4 and the like
		method = "modelopt"
	}
	read := quantMethods[method]
	if read == nil {
		c.fail(quantKey+".quant_method", values["quant_method"], fmt.Sprintf("one of %s, or %s: Krait supports no other", strings.Join(methods, ", "), QuantMethod))
		return
	}
	c.quant = &Quantization{Method: method}
	read(&q, c.quant)
}

func (c *quantConfig) text(key string) string {
	switch v := c.values[key].(type) {
	case nil:
		return ""
	case string:
		return strings.ToLower(v)
	default:
		return fmt.Sprint(v)
	}
}

// oneOf is a value in lower case; def without one.
func (c *quantConfig) oneOf(key, def string, options ...string) string {
	v := c.text(key)
	if v == "" {
		v = def
	}
	for _, o := range options {
		if strings.EqualFold(v, o) {
			return v
		}
	}
	c.fail(quantKey+"."+key, c.values[key], "one of "+strings.Join(options, ", ")+": Krait supports no other")
	return v
}

// block is two sizes, as a list or as "128x128".
func (c *quantConfig) block(key string) (size [2]int) {
	v := c.values[key]
	if v == nil {
		return size
	}
	list, _ := v.([]any)
	if s, ok := v.(string); ok {
		for part := range strings.SplitSeq(s, "x") {
			var n float64
			if _, err := fmt.Sscanf(part, "%g", &n); err == nil {
				list = append(list, n)
			}
		}
	}
	for i, x := range list {
		if n, ok := x.(float64); ok && len(list) == 2 && n >= 1 && n <= MaxDim && n == float64(int(n)) {
			size[i] = int(n)
		}
	}
	if size[0] == 0 || size[1] == 0 {
		c.fail(quantKey+"."+key, v, "two sizes of at least 1, such as [128, 128]")
	}
	return size
}

// group is a number of columns.
func (c *quantConfig) group(key string) int {
	v, ok := c.values[key].(float64)
	n := int(v)
	if !ok && c.values[key] == nil {
		return 0
	}
	if !ok || float64(n) != v || n != -1 && (n < 32 || n%32 != 0 || n > MaxDim) {
		c.fail(quantKey+"."+key, c.values[key], "-1 or a multiple of 32")
	}
	return n
}

// patterns are names of modules.
func (c *quantConfig) patterns(key string) (out []string) {
	v := c.values[key]
	list, ok := v.([]any)
	for _, x := range list {
		s, isText := x.(string)
		if rest, isRegexp := strings.CutPrefix(s, "re:"); isRegexp {
			if _, err := regexp.Compile(rest); err != nil {
				isText = false
			}
		}
		ok = ok && isText
		out = append(out, s)
	}
	if v != nil && !ok {
		c.fail(quantKey+"."+key, v, "a list of names of modules")
	}
	return out
}

// groups reads config_groups of compressed-tensors: what weights are must be FP8 or of 4 bits.
// Sizes that differ between groups are left to the shapes of scales.
func (c *quantConfig) groups(q *Quantization) {
	groups, _ := c.values["config_groups"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		group, _ := groups[name].(map[string]any)
		weights, _ := group["weights"].(map[string]any)
		if weights == nil {
			continue
		}
		w := quantConfig{c.Config, weights}
		if kind := w.text("num_bits") + " bits, " + w.oneOf("type", "int", "int", "float"); kind != "8 bits, float" && kind != "4 bits, float" && kind != "4 bits, int" {
			c.fail(quantKey+".config_groups."+name+".weights", weights, "FP8, or floats or integers of 4 bits: Krait supports no other")
			continue
		}
		if w.text("type") == "float" {
			if block := w.block("block_structure"); block[0] > 0 {
				q.Block = block
			}
			continue
		}
		size := w.group("group_size")
		if q.Group != 0 && q.Group != size {
			size = 0
		}
		q.Group = size
	}
}

// Excludes reports whether a module is named by a pattern: a name, one that it begins or ends
// with, a wildcard (ModelOpt), or a regular expression after re: (compressed-tensors).
func (q *Quantization) Excludes(module string) bool {
	return slices.ContainsFunc(q.Excluded, func(p string) bool {
		if rest, ok := strings.CutPrefix(p, "re:"); ok {
			matched, err := regexp.MatchString("^(?:"+rest+")", module)
			return err == nil && matched
		}
		if matched, err := path.Match(p, module); err == nil && matched { // names have no slash
			return true
		}
		return module == p || strings.HasPrefix(module, p+".") || strings.HasSuffix(module, "."+p)
	})
}

// readQuantFile takes what ModelOpt's file says if the config says nothing; read returns the file,
// or fs.ErrNotExist.
func (c *Config) readQuantFile(read func() ([]byte, error)) error {
	if c.values[quantKey] != nil {
		return nil
	}
	data, err := read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return fmt.Errorf("%s: not a JSON object: %w", QuantFile, err)
	}
	if _, ok := values["quantization"].(map[string]any); !ok {
		return fmt.Errorf("%s: quantization is missing", QuantFile)
	}
	c.values[quantKey] = values
	return nil
}

// ReadConfigFS reads config.json in the root of a file system.
func ReadConfigFS(fsys fs.FS) (*Config, error) {
	const path = "config.json"
	data, err := files.ReadFS(fsys, path, files.Config)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(path, data)
	if err != nil {
		return nil, err
	}
	return c, c.readQuantFile(func() ([]byte, error) { return files.ReadFS(fsys, QuantFile, files.Config) })
}

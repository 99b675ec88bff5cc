package models

import "github.com/krait-ml/krait/graph"

// QuantMethod is what quantization_config calls blocks in safetensors, so that others
// refuse the folder and do not take the bytes for weights.
const QuantMethod = "krait_q8"

// InBlocks says in the config that matrices of the checkpoint are in 8-bit blocks.
func (c *Config) InBlocks() {
	c.Set("quantization_config", map[string]any{"quant_method": QuantMethod, "bits": 8.0, "block_size": float64(graph.BlockLen)})
}

// quantized refuses other ways to quantize weights.
func (c *Config) quantized() {
	v, _ := c.get("quantization_config")
	if m, ok := v.(map[string]any); ok && m["quant_method"] == QuantMethod {
		return
	}
	c.Refuse("quantization_config")
}

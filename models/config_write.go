package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Set changes a key, before the config is read.
func (c *Config) Set(key string, v any) { c.values[key] = v }

// Value is the value of a key as JSON has it; nil without the key.
func (c *Config) Value(key string) any { return c.values[key] }

// Delete removes a key, before the config is read.
func (c *Config) Delete(key string) { delete(c.values, key) }

// Err joins the errors of the keys that were read.
func (c *Config) Err() error { return errors.Join(c.errs...) }

// Cut leaves the first layers of the model, also in what the config says of each
// layer. A config that does not say how many there are is an error.
func (c *Config) Cut(layers int) error {
	const key = "num_hidden_layers"
	all, ok := c.values[key].(float64)
	if !ok || layers < 1 || float64(layers) > all {
		return fmt.Errorf("%s: %d layers cannot be cut from %s %v; it must be a number of at least as many", c.Path, layers, key, c.values[key])
	}
	for k, v := range c.values {
		if pattern, ok := v.(string); ok && k == "hybrid_override_pattern" {
			c.values[k] = pattern[:min(layers, len(pattern))]
		}
		list, ok := v.([]any)
		if !ok {
			continue
		}
		switch k {
		case "layers_block_type", "layer_types":
			c.values[k] = list[:min(layers, len(list))]
		case "attn_layer_indices", "hybrid_layer_ids", "full_attn_idxs", "mlp_only_layers":
			c.values[k] = slices.DeleteFunc(slices.Clone(list), func(i any) bool {
				n, ok := i.(float64)
				return ok && n >= float64(layers)
			})
		}
	}
	c.values[key] = float64(layers)
	return nil
}

// Text writes the config as Python does, with a bare Infinity.
func (c *Config) Text() ([]byte, error) {
	text, err := json.MarshalIndent(c.values, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	for _, s := range specials {
		text = bytes.ReplaceAll(text, []byte(s.quoted), []byte(s.bare))
	}
	return append(text, '\n'), nil
}

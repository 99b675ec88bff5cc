// Package embedded holds the small trained model that the program carries.
package embedded

import _ "embed"

// Name is what the model is called; a token is a byte.
const Name = "tiny-mamba"

// Config is its config.json, Weights its model.safetensors.
var (
	//go:embed tiny-mamba/config.json
	Config []byte
	//go:embed tiny-mamba/model.safetensors
	Weights []byte
)

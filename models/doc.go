// Package models reads Hugging Face checkpoints and defines the families as
// graphs: one file per family, in the terms of its paper, from the keys of
// config.json. It knows nothing of ranks, layouts or devices.
package models

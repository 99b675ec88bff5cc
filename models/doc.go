// Package models reads Hugging Face checkpoints and defines the families as
// graphs: one file per family, in the terms of its paper, from the keys of
// config.json. It knows nothing of ranks, layouts or devices.
//
//	c, err := models.Open(dir) // its graph is c.Graph, a tensor c.Tensor("backbone.norm_f.weight")
//
// Keys that are wrong are errors that name file, key and what it must be, all at once; keys that
// nobody asked for are in [Model.Unknown]. Tensors that are missing or of another shape are errors
// of Open. [Register] adds a family.
package models

// Package models defines families of models as graphs: one file per family, in the terms of its
// paper, from the keys of config.json. It reads no weights, and knows nothing of ranks, layouts or
// devices.
//
//	c, err := models.ReadConfig(dir)
//	m, err := models.Read(c)
//	g, err := m.Graph(nil)
//
// A wrong key is an error that names file, key and legal values, all at once; keys that no family
// reads are in [Model.Unknown]. [Register] adds a family. Package checkpoint finds the weights.
package models

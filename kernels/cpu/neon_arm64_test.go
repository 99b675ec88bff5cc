package cpu

import "github.com/krait-ml/krait/graph"

func converters() map[string]*converter { return map[string]*converter{"neon": &convertNEON} }

func vectorProducts() map[string]*products { return map[string]*products{"neon": &productsNEON} }

func vectorBlocks() map[graph.DType]blockWeights { return productsNEON.blocks }

package cuda

import (
	"fmt"
	"maps"

	"github.com/krait-ml/krait/graph"
)

// Own is the kernel of an operation that was registered outside of Krait.
type Own struct {
	// PTX is the text of the functions that are launched, for the least GPU that it is to run on.
	PTX []byte
	// Launch plans the launches of a call, each by [Call.Add]. Grids depend on shapes only, never
	// on what is in a tensor, so that a captured graph of launches serves other batches of the same
	// size.
	Launch func(c *Call) error
	// Scratch returns the bytes that a call needs beside its tensors; nil: none.
	Scratch func(c *Call) int64
}

// own has the modules that were registered, by name.
var own = map[string][]byte{}

// Register gives an operation its kernel for GPUs. It is called after [graph.RegisterOp], from an
// init function; a name that is not in the table, or has a kernel, panics. Where an operation has
// none, models with it cannot be opened on GPUs, and say so; simulated devices run its reference
// kernel.
func Register(op string, k Own) {
	row, ok := graph.Lookup(op)
	if !ok {
		panic(fmt.Sprintf("cuda.Register: %v (graph.RegisterOp comes first)", graph.Unknown(op)))
	}
	if _, ok := Kernels[op]; ok {
		panic(fmt.Sprintf("cuda.Register: operation %s has a kernel", op))
	}
	if len(k.PTX) == 0 || k.Launch == nil {
		panic(fmt.Sprintf("cuda.Register: the kernel of %s has no PTX or no Launch", op))
	}
	module := "own." + op
	own[module] = k.PTX
	Kernels[op] = Kernel{op: row, scratch: k.Scratch, launch: func(c *Call) error {
		c.module = module
		return k.Launch(c)
	}}
}

// Add launches a function of the operation's PTX on grid blocks of block threads, with shared
// bytes of dynamic shared memory. Parameters are laid out as [Params] says. Nothing is launched
// where an axis of the grid is 0.
func (c *Call) Add(function string, grid, block [3]int, shared int, params ...any) {
	c.launch(c.module, function, grid, block, shared, params...)
}

// allModules are Krait's and those that were registered.
func allModules() map[string][]byte {
	all := map[string][]byte{}
	for _, modules := range sources() {
		maps.Copy(all, modules())
	}
	maps.Copy(all, own)
	return all
}

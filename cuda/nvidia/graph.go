//go:build linux && (amd64 || arm64)

package nvidia

import (
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// BeginCapture begins a capture of this thread: other threads go on allocating.
func (s *stream) BeginCapture() error {
	const threadLocal = 1
	if err := s.open(cuStreamBeginCapture); err != nil {
		return err
	}
	return s.quick(cuStreamBeginCapture, s.handle, threadLocal)
}

func (s *stream) EndCapture() (driver.Graph, error) {
	if err := s.open(cuStreamEndCapture); err != nil {
		return nil, err
	}
	var captured uintptr
	if err := s.call(cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&captured))); err != nil {
		return nil, err
	}
	g := &graph{primary: s.primary}
	err := s.call(cuGraphGetNodes, captured, 0, uintptr(unsafe.Pointer(&g.nodes)))
	if err == nil {
		err = s.call(cuGraphInstantiate, uintptr(unsafe.Pointer(&g.handle)), captured, 0)
	}
	if err2 := s.call(cuGraphDestroy, captured); err == nil {
		err = err2
	}
	if err != nil {
		return nil, because(err, "a graph of %d nodes", g.nodes)
	}
	return g, nil
}

// graph is an instantiated graph.
type graph struct {
	*primary
	handle uintptr // 0 when closed
	nodes  uint64
}

func (g *graph) Launch(on driver.Stream) error {
	s, ok := on.(*stream)
	switch {
	case g.handle == 0:
		return closed("cuGraphLaunch", "graph")
	case !ok:
		return foreign("cuGraphLaunch", on)
	case s.handle == 0:
		return closed("cuGraphLaunch", "stream")
	}
	return g.quick(cuGraphLaunch, g.handle, s.handle)
}

func (g *graph) Nodes() int { return int(g.nodes) }

func (g *graph) Close() error {
	if g.handle == 0 {
		return closed("cuGraphExecDestroy", "graph")
	}
	handle := g.handle
	g.handle = 0
	return g.quick(cuGraphExecDestroy, handle)
}

package sim

import (
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
)

// node is a task of a graph.
type node struct {
	*task
	p     *primary
	role  int // of the stream that it was captured in
	after []*node
}

// capture is a graph in the making.
type capture struct {
	origin  *stream
	thread  int
	streams []*stream // that take part
	nodes   []*node   // each after those it depends on
	broken  *driver.Error
	ended   bool
}

// breaks makes the capture invalid for a reason, and returns that.
func (c *capture) breaks(err *driver.Error) error {
	if c.broken == nil {
		c.broken = err
	}
	return err
}

// invalid is the error for going on with a broken capture.
func (c *capture) invalid(call string) error {
	return driver.CUDA(call, driver.CaptureInvalidated).Because("by %v", c.broken)
}

// add adds a task to the end of a stream.
func (c *capture) add(s *stream, t *task, after []*node) {
	n := &node{task: t, p: s.primary, role: s.lane.role, after: slices.Clone(after)}
	c.nodes = append(c.nodes, n)
	s.tail = []*node{n}
}

// join lets a stream wait for an event of a capture, which makes it take part.
func (s *stream) join(call string, ev *event) error {
	c := ev.capture
	switch {
	case c.ended:
		return driver.CUDA(call, driver.CapturedEvent)
	case c.broken != nil:
		return c.invalid(call)
	case s.capture == nil:
		s.capture = c
		c.streams = append(c.streams, s)
	case s.capture != c:
		s.capture.breaks(driver.CUDA(call, driver.CaptureMerge))
		return c.breaks(driver.CUDA(call, driver.CaptureMerge))
	}
	c.add(s, &task{name: call, marker: true}, append(slices.Clone(s.tail), ev.tail...))
	return nil
}

func (s *stream) BeginCapture() error {
	const call = "cuStreamBeginCapture_v2"
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	id := thread()
	if s.capture != nil || s.captures[id] != nil {
		return driver.CUDA(call, driver.IllegalState).Because("this stream or thread captures already")
	}
	s.capture = &capture{origin: s, thread: id, streams: []*stream{s}}
	s.captures[id] = s.capture
	return nil
}

func (s *stream) EndCapture() (driver.Graph, error) {
	const call = "cuStreamEndCapture"
	if err := s.enter(call); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	c := s.capture
	switch {
	case s.closed && (c == nil || c.ended):
		return nil, closedError(call, s)
	case c == nil:
		return nil, driver.CUDA(call, driver.IllegalState).Because("stream %d is not captured", s.lane.role)
	case c.origin != s:
		return nil, c.breaks(driver.CUDA(call, driver.CaptureUnmatched))
	case c.thread != thread():
		return nil, c.breaks(driver.CUDA(call, driver.CaptureWrongThread))
	}
	tail := s.tail
	c.end()
	if c.broken != nil {
		return nil, c.invalid(call)
	}
	if loose := c.loose(tail); loose != nil {
		return nil, driver.CUDA(call, driver.CaptureUnjoined).Because("stream %d of device %d, with %s", loose.role, loose.p.info.Index, loose.name)
	}
	if err := s.quiet("cuGraphInstantiateWithFlags"); err != nil {
		return nil, err
	}
	g := &graph{primary: s.primary, nodes: c.nodes}
	s.made(g, "graph of %d nodes", g.Nodes())
	return g, nil
}

// end lets all streams go.
func (c *capture) end() {
	c.ended = true
	delete(c.origin.captures, c.thread)
	for _, s := range c.streams {
		s.capture, s.tail = nil, nil
	}
}

// loose returns a node that none of the tail comes after, or nil.
func (c *capture) loose(tail []*node) *node {
	joined := map[*node]bool{}
	for _, n := range tail {
		joined[n] = true
	}
	for _, n := range slices.Backward(c.nodes) {
		if !joined[n] {
			return n
		}
		for _, b := range n.after {
			joined[b] = true
		}
	}
	return nil
}

// graph is captured work.
type graph struct {
	*primary
	nodes  []*node
	last   *op // launch
	closed bool
}

// Nodes counts what does work.
func (g *graph) Nodes() int {
	count := 0
	for _, n := range g.nodes {
		if !n.marker {
			count++
		}
	}
	return count
}

// Launch runs the nodes in any order that their dependencies allow, in lanes of
// the streams in which they were captured, so that the scheduler can be unkind
// in the same ways. A launch waits for the one before.
func (g *graph) Launch(on driver.Stream) error {
	const call = "cuGraphLaunch"
	s, ok := on.(*stream)
	if !ok || s.Driver != g.Driver {
		return foreign(call, on)
	}
	if err := s.begin(call); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch {
	case g.closed:
		return closedError(call, g)
	case s.capture != nil:
		return s.capture.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("graphs within graphs are not simulated"))
	case s.primary != g.primary:
		return driver.CUDA(call, driver.InvalidHandle).Because("a graph of device %d on a stream of device %d", g.info.Index, s.info.Index)
	}
	o := &op{task: &task{name: call}}
	if g.last != nil && !g.last.done {
		o.after = []*op{g.last}
	}
	var err error
	if o.replay, err = g.instance(o); err != nil {
		return err
	}
	g.last = o
	s.push(s.lane, o)
	return nil
}

// instance makes ops of the nodes, in lanes.
func (g *graph) instance(whole *op) (lanes []*lane, err error) {
	ops := make(map[*node]*op, len(g.nodes))
	for _, n := range g.nodes {
		o := &op{task: n.task}
		for _, b := range n.after {
			o.after = append(o.after, ops[b])
		}
		i := slices.IndexFunc(lanes, func(l *lane) bool { return l.p == n.p && l.role == n.role })
		if i < 0 {
			i = len(lanes)
			lanes = append(lanes, &lane{p: n.p, role: n.role, graph: whole})
		}
		o.lane = lanes[i]
		lanes[i].queue = append(lanes[i].queue, o)
		if err := g.enroll(o); err != nil {
			return nil, err
		}
		ops[n] = o
	}
	return lanes, nil
}

func (g *graph) Close() error { return g.shut("cuGraphExecDestroy", g, &g.closed) }

package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda"
)

// Counter counts the calls that go through a driver. A nil Counter counts nothing.
type Counter struct {
	kernels, products, collectives, graphs, copies, waited atomic.Int64
}

// Calls counts calls, and the time that threads waited for the device.
type Calls struct {
	Kernels, Products, Collectives, Graphs, Copies int64
	Waited                                         time.Duration
}

// Launches returns the number of launches; a graph is one launch.
func (c Calls) Launches() int64 { return c.Kernels + c.Products + c.Collectives + c.Graphs }

// Minus returns the calls since d.
func (c Calls) Minus(d Calls) Calls {
	return Calls{c.Kernels - d.Kernels, c.Products - d.Products, c.Collectives - d.Collectives, c.Graphs - d.Graphs, c.Copies - d.Copies, c.Waited - d.Waited}
}

// Calls returns the calls so far.
func (c *Counter) Calls() Calls {
	if c == nil {
		return Calls{}
	}
	return Calls{c.kernels.Load(), c.products.Load(), c.collectives.Load(), c.graphs.Load(), c.copies.Load(), time.Duration(c.waited.Load())}
}

// Watch measures the memory bandwidth of a device before a model with that many ranks is opened on
// it, makes the device count calls, and returns the environment.
func Watch(d *cuda.Device, ranks int, o *Options) (Environment, error) {
	here := Here(d.Driver)
	list, err := d.Driver.Devices()
	if err != nil {
		return here, err
	}
	if o.GPUs = 1; len(list) >= ranks {
		o.GPUs = max(1, ranks)
	}
	if o.Bandwidth, err = Bandwidth(d.Driver); err != nil {
		return here, err
	}
	here.Bandwidth = o.Bandwidth
	o.Counter = new(Counter)
	d.Driver = Count(d.Driver, o.Counter)
	return here, nil
}

// Count returns driver d with its calls counted.
func Count(d driver.Driver, c *Counter) driver.Driver { return &countedDriver{d, c} }

// The counting types wrap the driver's objects, and unwrap them where they are arguments.

type countedDriver struct {
	driver.Driver
	c *Counter
}

type countedContext struct {
	driver.Context
	c *Counter
}

type countedStream struct {
	driver.Stream
	c *Counter
}

type countedGraph struct {
	driver.Graph
	c *Counter
}

type countedGEMM struct {
	driver.GEMM
	c *Counter
}

type countedCollectives struct {
	driver.Collectives
	c *Counter
}

func bare(c driver.Context) driver.Context {
	if w, ok := c.(*countedContext); ok {
		return w.Context
	}
	return c
}

func bareStream(s driver.Stream) driver.Stream {
	if w, ok := s.(*countedStream); ok {
		return w.Stream
	}
	return s
}

func (d *countedDriver) Open(device int) (driver.Context, error) {
	c, err := d.Driver.Open(device)
	if err != nil {
		return nil, err
	}
	return &countedContext{c, d.c}, nil
}

func (d *countedDriver) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	x, err := d.Driver.Join(ctx, bare(c), id, ranks, rank)
	if err != nil {
		return nil, err
	}
	return &countedCollectives{x, d.c}, nil
}

func (c *countedContext) Stream() (driver.Stream, error) {
	s, err := c.Context.Stream()
	if err != nil {
		return nil, err
	}
	return &countedStream{s, c.c}, nil
}

func (c *countedContext) GEMM() (driver.GEMM, error) {
	g, err := c.Context.GEMM()
	if err != nil {
		return nil, err
	}
	return &countedGEMM{g, c.c}, nil
}

func (c *countedContext) EnablePeer(other driver.Context) error {
	return c.Context.EnablePeer(bare(other))
}

func (s *countedStream) Launch(f driver.Function, l *driver.LaunchConfig) error {
	s.c.kernels.Add(1)
	return s.Stream.Launch(f, l)
}

func (s *countedStream) Host(c *driver.HostCall) error { return s.Stream.(driver.HostStream).Host(c) }

func (s *countedStream) CopyIn(dst driver.Ptr, src []byte) error {
	s.c.copies.Add(1)
	return s.Stream.CopyIn(dst, src)
}

func (s *countedStream) CopyOut(dst []byte, src driver.Ptr) error {
	s.c.copies.Add(1)
	return s.Stream.CopyOut(dst, src)
}

func (s *countedStream) Copy(dst, src driver.Ptr, bytes int64) error {
	s.c.copies.Add(1)
	return s.Stream.Copy(dst, src, bytes)
}

func (s *countedStream) CopyPeer(dst driver.Ptr, dstCtx driver.Context, src driver.Ptr, srcCtx driver.Context, bytes int64) error {
	s.c.copies.Add(1)
	return s.Stream.CopyPeer(dst, bare(dstCtx), src, bare(srcCtx), bytes)
}

func (s *countedStream) Fill(dst driver.Ptr, value byte, bytes int64) error {
	s.c.copies.Add(1)
	return s.Stream.Fill(dst, value, bytes)
}

func (s *countedStream) EndCapture() (driver.Graph, error) {
	g, err := s.Stream.EndCapture()
	if err != nil {
		return nil, err
	}
	return &countedGraph{g, s.c}, nil
}

func (s *countedStream) Synchronize() error {
	start := time.Now()
	err := s.Stream.Synchronize()
	s.c.waited.Add(int64(time.Since(start)))
	return err
}

func (g *countedGraph) Launch(s driver.Stream) error {
	g.c.graphs.Add(1)
	return g.Graph.Launch(bareStream(s))
}

func (g *countedGEMM) SetStream(s driver.Stream) error { return g.GEMM.SetStream(bareStream(s)) }

func (g *countedGEMM) Gemm(call *driver.GemmCall) error {
	g.c.products.Add(1)
	return g.GEMM.Gemm(call)
}

func (x *countedCollectives) AllReduce(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	x.c.collectives.Add(1)
	return x.Collectives.AllReduce(bareStream(s), send, recv, count, f)
}

func (x *countedCollectives) ReduceScatter(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	x.c.collectives.Add(1)
	return x.Collectives.ReduceScatter(bareStream(s), send, recv, count, f)
}

func (x *countedCollectives) AllGather(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	x.c.collectives.Add(1)
	return x.Collectives.AllGather(bareStream(s), send, recv, count, f)
}

func (x *countedCollectives) Broadcast(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format, root int) error {
	x.c.collectives.Add(1)
	return x.Collectives.Broadcast(bareStream(s), send, recv, count, f, root)
}

func (x *countedCollectives) Send(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	x.c.collectives.Add(1)
	return x.Collectives.Send(bareStream(s), buf, count, f, peer)
}

func (x *countedCollectives) Recv(s driver.Stream, buf driver.Ptr, count int64, f driver.Format, peer int) error {
	x.c.collectives.Add(1)
	return x.Collectives.Recv(bareStream(s), buf, count, f, peer)
}

package cuda_test

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/krait-ml/krait/cuda/driver"
)

// changing is a driver that changes kernels as they are loaded.
type changing struct {
	driver.Driver
	change func(text string) string
}

type changingContext struct {
	driver.Context
	change func(text string) string
}

func (d changing) Open(device int) (driver.Context, error) {
	c, err := d.Driver.Open(device)
	if err != nil {
		return nil, err
	}
	return changingContext{c, d.change}, nil
}

func (d changing) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	return d.Driver.Join(ctx, c.(changingContext).Context, id, ranks, rank)
}

func (c changingContext) EnablePeer(other driver.Context) error {
	return c.Context.EnablePeer(other.(changingContext).Context)
}

func (c changingContext) Module(text []byte, name string) (driver.Module, error) {
	if name == "mailbox" {
		text = []byte(c.change(string(text)))
	}
	return c.Context.Module(text, name)
}

// counting counts the kernels of ours that join ranks, as they are loaded, and AllReduces of NCCL.
type counting struct {
	driver.Driver
	kernels, reduced int64
	norms            int64 // kernels that sum and norm
}

func (d *counting) Open(device int) (driver.Context, error) {
	return changing{d.Driver, func(text string) string {
		atomic.AddInt64(&d.kernels, int64(strings.Count(text, ".entry")))
		atomic.AddInt64(&d.norms, int64(strings.Count(text, ".entry mail_add_norm")))
		return text
	}}.Open(device)
}

func (d *counting) Join(ctx context.Context, c driver.Context, id driver.UniqueID, ranks, rank int) (driver.Collectives, error) {
	x, err := d.Driver.Join(ctx, c.(changingContext).Context, id, ranks, rank)
	return countingCollectives{x, d}, err
}

type countingCollectives struct {
	driver.Collectives
	of *counting
}

func (c countingCollectives) AllReduce(s driver.Stream, send, recv driver.Ptr, count int64, f driver.Format) error {
	atomic.AddInt64(&c.of.reduced, 1)
	return c.Collectives.AllReduce(s, send, recv, count, f)
}

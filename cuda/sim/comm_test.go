package sim

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// member is a rank's device, with memory from before the ranks joined.
type member struct {
	*drivertest.Device
	free driver.Ptr
}

func (m *member) Words(n int) driver.Ptr {
	m.free += driver.Ptr(4 * n)
	return m.free - driver.Ptr(4*n)
}

// each runs a function for every rank, each on its thread and device, and
// returns the errors.
func each(t *testing.T, d *Driver, ranks int, do func(v *member, x driver.Collectives, rank int) error) []error {
	t.Helper()
	id, err := d.UniqueID()
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			v := &member{Device: drivertest.Open(t, d, rank)}
			v.free = v.Device.Words(64)
			x, err := d.Join(t.Context(), v.Context, id, ranks, rank)
			if err == nil {
				err = do(v, x, rank)
			}
			errs[rank] = err
		})
	}
	all.Wait()
	return errs
}

// TestMismatch: ranks that do not agree get an error, whichever comes first.
func TestMismatch(t *testing.T) {
	for name, calls := range map[string][2]func(x driver.Collectives, s driver.Stream, p driver.Ptr) error{
		"count": {
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error {
				return x.AllReduce(s, p, p, 2, driver.F32)
			},
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error {
				return x.AllReduce(s, p, p, 3, driver.F32)
			},
		},
		"kind": {
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error {
				return x.AllReduce(s, p, p, 1, driver.F32)
			},
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error {
				return x.AllGather(s, p, p, 1, driver.F32)
			},
		},
		"send": {
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error { return x.Send(s, p, 1, driver.F32, 1) },
			func(x driver.Collectives, s driver.Stream, p driver.Ptr) error { return x.Recv(s, p, 2, driver.F32, 0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := each(t, New(Options{Devices: 2}), 2, func(v *member, x driver.Collectives, rank int) error {
				s, p := v.NewStream(), v.Words(8)
				v.Must(s.Fill(p, 0, 32))
				if err := calls[rank](x, s, p); err != nil {
					return err
				}
				return s.Synchronize()
			})
			for _, err := range errs {
				contains(t, err, nil, "ncclInvalidUsage")
			}
		})
	}
}

// TestDuplicate: a device has one rank, as with NCCL.
func TestDuplicate(t *testing.T) {
	d := New(Options{})
	id, _ := d.UniqueID()
	errs := make(chan error)
	for rank := range 2 {
		go func() {
			v := drivertest.Open(t, d, 0)
			_, err := d.Join(t.Context(), v.Context, id, 2, rank)
			errs <- err
		}()
	}
	for range 2 {
		contains(t, <-errs, nil, "Duplicate GPU detected")
	}
}

// TestJoin: who waits for ranks that do not come can give up.
func TestJoin(t *testing.T) {
	d := New(Options{Devices: 2})
	v := drivertest.Open(t, d, 0)
	id, _ := d.UniqueID()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := d.Join(ctx, v.Context, id, 2, 0)
	contains(t, err, context.DeadlineExceeded, "rank 0 of 2 gave up")
	_, err = d.Join(t.Context(), v.Context, driver.UniqueID{}, 1, 0)
	contains(t, err, nil, "not from UniqueID")
	_, err = d.Join(t.Context(), v.Context, id, 1, 1)
	contains(t, err, nil, "rank 1 of 1")
}

// TestAbort: a rank that waits for one that never comes is freed when it is
// aborted, and then its stream goes on.
func TestAbort(t *testing.T) {
	comms := make(chan driver.Collectives, 1)
	errs := each(t, New(Options{Devices: 2}), 2, func(v *member, x driver.Collectives, rank int) error {
		if rank == 1 { // fails, and aborts all
			v.Must(x.Abort())
			return (<-comms).Abort()
		}
		s, p := v.NewStream(), v.Words(1)
		v.Must(s.Fill(p, 0, 4))
		v.Must(x.AllReduce(s, p, p, 1, driver.F32))
		v.Must(v.Store(s, p, 5, 1))
		comms <- x
		v.Want(s, p, 5)
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestAbortOne: a rank whose peer has aborted learns of it at once if it asks,
// and does not wait forever if it does not.
func TestAbortOne(t *testing.T) {
	errs := each(t, New(Options{Devices: 2, Patience: 50 * time.Millisecond}), 2, func(v *member, x driver.Collectives, rank int) error {
		if rank == 1 {
			return x.Abort()
		}
		s, p := v.NewStream(), v.Words(1)
		v.Must(s.Fill(p, 0, 4))
		v.Must(x.AllReduce(s, p, p, 1, driver.F32))
		contains(t, s.Synchronize(), nil, "ncclAllReduce of rank 0 on stream 0 of device 0 waits for rank 1, which has aborted its communicator")
		contains(t, x.AsyncError(), nil, "ncclRemoteError")
		contains(t, x.Close(), nil, "not done")
		v.Must(x.Abort())
		return s.Synchronize()
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestPatience: a wait that nothing ends says what is missing.
func TestPatience(t *testing.T) {
	gate := make(chan bool)
	each(t, New(Options{Devices: 2, Patience: 50 * time.Millisecond}), 2, func(v *member, x driver.Collectives, rank int) error {
		defer x.Abort()
		s, behind, p := v.NewStream(), v.NewStream(), v.Words(1)
		v.Must(s.Fill(p, 0, 4))
		if rank == 1 {
			<-gate
			return nil
		}
		defer close(gate)
		e := v.NewEvent(false)
		v.Must(x.AllReduce(s, p, p, 1, driver.F32))
		v.Must(s.Record(e))
		v.Must(behind.Wait(e))
		v.Must(behind.Fill(p, 0, 4))
		contains(t, behind.Synchronize(), nil, "ncclAllReduce of rank 0 on stream 0 of device 0 waits for rank 1, which has not called it")
		return nil
	})
}

// TestLostRank: when a rank's device is lost, the others hear of it.
func TestLostRank(t *testing.T) {
	errs := each(t, New(Options{Devices: 2, Patience: 50 * time.Millisecond, LoseDevice: 1}), 2, func(v *member, x driver.Collectives, rank int) error {
		s, p := v.NewStream(), v.Words(1)
		v.Must(s.Fill(p, 0, 4))
		if rank == 1 {
			v.Must(v.Store(s, p, 0, 1))
		}
		v.Must(x.AllReduce(s, p, p, 1, driver.F32))
		return s.Synchronize()
	})
	contains(t, errs[0], nil, "rank 1, which has lost its device")
	contains(t, errs[1], driver.ErrDeviceLost, "kernel store")
}

// TestCollectiveOrder: an operation that misses the wait for a collective on
// another stream is found out.
func TestCollectiveOrder(t *testing.T) {
	const ranks = 3
	found := 0
	for seed := range uint64(20) {
		d := New(Options{Devices: ranks, Seed: seed})
		wrong := false
		var mu sync.Mutex
		each(t, d, ranks, func(v *member, x driver.Collectives, rank int) error {
			compute, comm := v.NewStream(), v.NewStream()
			p, q := v.Words(1), v.Words(1)
			e := v.NewEvent(false)
			v.Must(compute.CopyIn(p, drivertest.Words(math.Float32bits(1))))
			v.Must(compute.Record(e))
			v.Must(comm.Wait(e))
			v.Must(x.AllReduce(comm, p, p, 1, driver.F32))
			v.Must(comm.Record(e))
			if rank != 1 {
				v.Must(compute.Wait(e))
			}
			v.Must(v.Add(compute, q, p, 0, 1)) // rank 1 may read what is not the sum yet
			v.Must(v.Synchronize())
			b := make([]byte, 4)
			v.Must(comm.CopyOut(b, q))
			mu.Lock()
			defer mu.Unlock()
			wrong = wrong || !bytes.Equal(b, drivertest.Words(math.Float32bits(ranks)))
			return x.Close()
		})
		if wrong {
			found++
		}
	}
	if found == 0 {
		t.Error("20 seeds did not show that a wait is missing")
	}
	t.Logf("%d of 20 seeds found it", found)
}

// TestPeersWait: a call that allocates, frees or loads while a collective of another
// device waits for this one gives an error; once the collective is called or given up,
// he may.
func TestPeersWait(t *testing.T) {
	type thread struct {
		*member
		s    driver.Stream
		p    driver.Ptr
		host []byte
	}
	for name, do := range map[string]func(v thread) error{
		"cuMemAlloc_v2":      func(v thread) error { return erring(v.Alloc(4)) },
		"cuMemFree_v2":       func(v thread) error { return v.Release(v.p) },
		"cuMemHostAlloc":     func(v thread) error { return erring(v.AllocHost(4)) },
		"cuMemFreeHost":      func(v thread) error { return v.ReleaseHost(v.host) },
		"cuModuleLoadDataEx": func(v thread) error { return erring(v.Module(nil, "m")) },
		"cublasCreate_v2":    func(v thread) error { return erring(v.GEMM()) },
		"cuGraphInstantiateWithFlags": func(v thread) error {
			v.Must(v.s.BeginCapture())
			return erring(v.s.EndCapture())
		},
	} {
		t.Run(name, func(t *testing.T) {
			ready, called := make(chan bool), make(chan driver.Collectives)
			errs := each(t, New(Options{Devices: 2, Patience: 20 * time.Millisecond}), 2, func(v *member, x driver.Collectives, rank int) error {
				s, p := v.NewStream(), v.Words(1)
				if rank == 0 {
					<-ready
					v.Must(s.Fill(p, 0, 4))
					v.Must(x.AllReduce(s, p, p, 1, driver.F32))
					called <- x
					return nil
				}
				host, err := v.AllocHost(4)
				v.Must(err)
				q, err := v.Alloc(4)
				v.Must(err)
				close(ready)
				other := <-called
				contains(t, do(thread{v, s, q, host}), nil, name+": device 1 waits for all devices of its group, and ncclAllReduce of rank 0 on device 0 waits for rank 1, which has not called it")
				v.Must(v.Synchronize()) // waits for this device alone
				v.Must(other.Abort())
				v.Must(v.Release(q))
				return v.ReleaseHost(host)
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

func erring[T any](_ T, err error) error { return err }

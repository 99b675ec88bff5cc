package sim

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/driver/drivertest"
)

// signalling has a kernel that writes a word of another device and then a flag there, and one that
// waits for the flag and reads the word. Where they are stands in a table.
const signalling = `.version 7.8
.target sm_80
.address_size 64
.visible .entry tell(.param .u64 table)
{
	.reg .b32 %r<6>;
	.reg .b64 %d<6>;
	ld.param.u64 %d1, [table];
	ld.global.u64 %d2, [%d1];
	ld.global.u64 %d3, [%d1+8];
	mov.u32 %r1, 7;
	mov.u32 %r2, 1;
	st.global.u32 [%d2], %r1;
	st.release.sys.global.u32 [%d3], %r2;
	ret;
}
.visible .entry listen(.param .u64 table)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .b64 %d<6>;
	ld.param.u64 %d1, [table];
	ld.global.u64 %d2, [%d1];
	ld.global.u64 %d3, [%d1+8];
	ld.global.u64 %d4, [%d1+16];
again:
	ld.acquire.sys.global.u32 %r1, [%d3];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra again;
	ld.global.u32 %r2, [%d2];
	st.global.u32 [%d4], %r2;
	ret;
}`

// pair is two devices, of which the first tells the second.
type pair struct {
	a, b   *drivertest.Device
	sa, sb driver.Stream

	tell, listen driver.Function
	tables       [2]driver.Ptr
	result       driver.Ptr
}

func newPair(t *testing.T, o Options, reach bool) *pair {
	o.Devices, o.Ordered = 2, true
	d := New(o)
	p := &pair{}
	p.b = drivertest.Open(t, d, 1)
	p.sb = p.b.NewStream()
	word, flag := p.b.Words(1), p.b.Words(1)
	p.result = p.b.Words(1)
	table := binary.LittleEndian.AppendUint64(nil, uint64(word))
	table = binary.LittleEndian.AppendUint64(table, uint64(flag))
	table = binary.LittleEndian.AppendUint64(table, uint64(p.result))
	p.tables[1] = p.b.Words(6)
	p.b.Must(p.sb.Fill(flag, 0, 4))
	p.b.Must(p.sb.CopyIn(p.tables[1], table))
	p.b.Must(p.sb.Synchronize())
	p.a = drivertest.Open(t, d, 0)
	if reach {
		p.a.Must(p.a.EnablePeer(p.b.Context))
		p.b.Must(p.b.Bind())
		p.b.Must(p.b.EnablePeer(p.a.Context))
		p.a.Must(p.a.Bind())
	}
	p.sa = p.a.NewStream()
	p.tables[0] = p.a.Words(6)
	p.a.Must(p.sa.CopyIn(p.tables[0], table))
	p.a.Must(p.sa.Synchronize())
	p.listen, p.tell = kernelOf(p.b, "listen"), kernelOf(p.a, "tell")
	return p
}

// kernelOf loads the kernels of a device, which no kernel may wait for then.
func kernelOf(v *drivertest.Device, kernel string) driver.Function {
	v.Must(v.Bind())
	m, err := v.Module([]byte(signalling), "signalling")
	v.Must(err)
	f, err := m.Function(kernel)
	v.Must(err)
	return f
}

func (p *pair) launch(v *drivertest.Device, s driver.Stream, f driver.Function, table driver.Ptr) error {
	v.Must(v.Bind())
	return s.Launch(f, &driver.LaunchConfig{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: drivertest.Params(table)})
}

// TestSignals: a kernel waits for one of another device, whichever is put in first, and what that
// wrote before comes before what it reads then.
func TestSignals(t *testing.T) {
	for seed := range uint64(4) {
		p := newPair(t, Options{Seed: seed}, true)
		p.a.Must(p.launch(p.b, p.sb, p.listen, p.tables[1]))
		for range 3 {
			done, err := p.sb.Query()
			p.a.Must(err)
			if done {
				t.Fatal("it does not wait")
			}
		}
		p.a.Must(p.launch(p.a, p.sa, p.tell, p.tables[0]))
		p.b.Must(p.b.Bind())
		p.b.Want(p.sb, p.result, 7)
	}
}

// TestSignalNeverComes: a wait that nothing can end says so, and what allocates on a device that is
// waited for.
func TestSignalNeverComes(t *testing.T) {
	p := newPair(t, Options{Patience: 100 * time.Millisecond}, true)
	p.a.Must(p.launch(p.b, p.sb, p.listen, p.tables[1]))
	contains(t, p.sb.Synchronize(), nil, "nothing can run: cuLaunchKernel of listen on stream 0 of device 1 waits for another device")
	p.a.Must(p.a.Bind())
	_, err := p.a.Alloc(4)
	contains(t, err, nil, "cuLaunchKernel of listen on device 1 waits for another device; CUDA would wait forever")
}

// TestNoPeerAccess: where a device may not reach another, it is told so, and a kernel that does it
// all the same fails; so it does where access was never asked for.
func TestNoPeerAccess(t *testing.T) {
	none := func(int, int) bool { return false }
	d := New(Options{Devices: 2, Peers: none})
	list, err := d.Devices()
	if l, ok := list[0].LinkTo(1); err != nil || !ok || l.Access || l.Atomics {
		t.Errorf("%+v %v", l, err)
	}
	for _, o := range []Options{{Peers: none}, {}} {
		p := newPair(t, o, false)
		if o.Peers != nil {
			p.a.Refused(p.a.EnablePeer(p.b.Context), driver.PeerUnsupported)
		}
		p.a.Must(p.launch(p.a, p.sa, p.tell, p.tables[0]))
		contains(t, p.sa.Synchronize(), driver.ErrKernelFault, "in the memory of device 1, to which device 0 has no peer access")
	}
}

// TestLazyLoading: with lazy loading, the first product of a shape waits for a kernel of another
// device that waits for this device; products of shapes that were launched before, and all with
// eager loading, do not.
func TestLazyLoading(t *testing.T) {
	for _, c := range []struct{ lazy, before, refused bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		p := newPair(t, Options{LazyLoading: c.lazy, Patience: 50 * time.Millisecond}, true)
		x := p.a.Words(16)
		p.a.Must(p.sa.Fill(x, 0, 64))
		h, err := p.a.GEMM()
		p.a.Must(err)
		p.a.Must(h.SetStream(p.sa))
		product := func() error {
			return h.Gemm(&driver.GemmCall{M: 2, N: 2, K: 2, A: x, B: x + 16, C: x + 32, LDA: 2, LDB: 2, LDC: 2, In: driver.F32, Out: driver.F32})
		}
		if c.before {
			p.a.Must(product())
			p.a.Must(p.sa.Synchronize())
		}
		p.a.Must(p.launch(p.b, p.sb, p.listen, p.tables[1]))
		for range 8 { // the scheduler may let a stream wait for some of them
			if done, err := p.sb.Query(); done || err != nil {
				t.Fatalf("the kernel that waits has run: %v", err)
			}
		}
		p.a.Must(p.a.Bind())
		if err = product(); c.refused {
			contains(t, err, nil, "cublasGemmEx: device 0 waits for all devices of its group, and cuLaunchKernel of listen on device 1 waits for another device")
			continue
		}
		p.a.Must(err)
		p.a.Must(p.launch(p.a, p.sa, p.tell, p.tables[0]))
		p.b.Must(p.b.Bind())
		p.b.Want(p.sb, p.result, 7)
	}
}

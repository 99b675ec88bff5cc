package sim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/cuda/ptx"
)

// gemm is a cuBLAS handle.
type gemm struct {
	*primary
	on     *stream
	closed bool
	work   workspace
}

// workspace is where products keep what they have summed so far, until they are
// done: those that use one at the same time spoil each other's.
type workspace struct {
	lent driver.Ptr // 0: the handle has some of its own
	own  []byte
}

// workspaceAlign is the alignment that cuBLAS requires of a workspace.
const workspaceAlign = 256

// cublasInvalidValue is CUBLAS_STATUS_INVALID_VALUE.
const cublasInvalidValue = 7

// workspaceTag is the size of what a simulated product keeps there.
const workspaceTag = 8

func (c *contextHandle) GEMM() (driver.GEMM, error) {
	if c.o.NoBLAS {
		return nil, notInstalled("cuBLAS")
	}
	if err := c.enterWithPeers("cublasCreate_v2"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	g := &gemm{primary: c.primary}
	c.made(g, "GEMM handle")
	return g, nil
}

func (g *gemm) SetStream(on driver.Stream) error {
	const call = "cublasSetStream_v2"
	s, ok := on.(*stream)
	if !ok || s.primary != g.primary {
		return foreign(call, on)
	}
	if err := g.enter(call); err != nil {
		return err
	}
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return closedError(call, g)
	case s.closed:
		return closedError(call, s)
	}
	g.on = s
	return nil
}

// SetWorkspace checks the memory.
func (g *gemm) SetWorkspace(p driver.Ptr, bytes int64) error {
	const call = "cublasSetWorkspace_v2"
	if err := g.enter(call); err != nil {
		return err
	}
	defer g.mu.Unlock()
	if g.closed {
		return closedError(call, g)
	}
	if err := g.owns(call, p, bytes); err != nil {
		return err
	}
	if p%workspaceAlign != 0 {
		return driver.CUBLAS(call, cublasInvalidValue).Because("the workspace at %#x is not aligned to %d bytes", uint64(p), workspaceAlign)
	}
	g.work = workspace{lent: p}
	if bytes < workspaceTag {
		g.work = workspace{}
	}
	return nil
}

func (g *gemm) Gemm(c *driver.GemmCall) error {
	const call = "cublasGemmEx"
	if g.on == nil {
		return &driver.Error{Call: call, Text: "SetStream was not called"}
	}
	if err := g.on.begin(call); err != nil {
		return err
	}
	defer g.mu.Unlock()
	if g.closed {
		return closedError(call, g)
	}
	if err := c.Check(); err != nil {
		return err
	}
	a, b := matrix{c.A, c.M, c.K, c.LDA, c.In}, matrix{c.B, c.N, c.K, c.LDB, c.In}
	out, add := matrix{c.C, c.M, c.N, c.LDC, c.Out}, c.Accumulate
	for _, x := range []matrix{a, b, out} {
		if err := g.owns(call, x.at, x.bytes()); err != nil {
			return err
		}
		if size := uint64(x.format.Bytes()); uint64(x.at)%size != 0 {
			return driver.CUBLAS(call, cublasInvalidValue).Because("the matrix at %#x is not aligned to its elements of %d bytes", uint64(x.at), size)
		}
	}
	if err := g.loadProduct(call, c); err != nil {
		return err
	}
	if g.on.capture != nil && g.work.lent == 0 {
		return g.on.capture.breaks(driver.CUDA(call, driver.CaptureUnsupported).Because("no workspace was lent, and allocating some cannot be captured"))
	}
	if g.work.own == nil && g.work.lent == 0 {
		g.work.own = make([]byte, workspaceTag)
	}
	g.counts.products++
	number := uint64(g.counts.products)
	in := g.work // as it is now
	g.on.put(&task{name: call, marker: true, work: func() error { return g.beginProduct(in, number) }})
	told := aboutProduct(c)
	if g.order != nil {
		told.touches = accessed{loads: slices.Concat(a.pieces(), b.pieces()), stores: out.pieces()}
		slices.SortFunc(told.touches.loads, func(a, b ptx.Piece) int { return cmp.Compare(a.At, b.At) })
	}
	g.on.put(&task{name: call, about: told, cost: 5*time.Microsecond + time.Duration(c.M*c.N*c.K/1000), work: func() error {
		if err := g.endProduct(in, number); err != nil {
			return err
		}
		return g.multiply(g.info.Capability, a, b, out, add)
	}})
	return nil
}

// shape tells products apart that cuBLAS may have different kernels for.
type shape struct {
	m, n, k int
	in, out driver.Format
}

// loadProduct loads the kernel of a product, of each shape once, if kernels are loaded lazily.
func (g *gemm) loadProduct(call string, c *driver.GemmCall) error {
	s := shape{c.M, c.N, c.K, c.In, c.Out}
	if !g.o.LazyLoading || g.loaded[s] {
		return nil
	}
	if g.loaded == nil {
		g.loaded = map[shape]bool{}
	}
	g.loaded[s] = true
	return g.quiet(call)
}

// beginProduct is the first half of a product, which leaves its number in the workspace.
func (d *Driver) beginProduct(in workspace, number uint64) error {
	if in.lent == 0 {
		binary.LittleEndian.PutUint64(in.own, number)
		return nil
	}
	return d.mem.Write(uint64(in.lent), binary.LittleEndian.AppendUint64(nil, number))
}

// endProduct is the second half, which must find it there.
func (d *Driver) endProduct(in workspace, number uint64) error {
	var tag [workspaceTag]byte
	if copy(tag[:], in.own); in.lent != 0 {
		if err := d.mem.Read(uint64(in.lent), tag[:]); err != nil {
			return err
		}
	}
	if binary.LittleEndian.Uint64(tag[:]) != number {
		return errors.New("the product's workspace was overwritten while it was used: another stream has the same")
	}
	return nil
}

// matrix is a matrix in device memory, stored by rows.
type matrix struct {
	at         driver.Ptr
	rows, cols int
	stride     int
	format     driver.Format
}

// bytes is from its first byte to its last.
func (x matrix) bytes() int64 { return int64((x.rows-1)*x.stride+x.cols) * int64(x.format.Bytes()) }

func (x matrix) row(i int) (at uint64, bytes int64) {
	size := x.format.Bytes()
	return uint64(x.at) + uint64(i*x.stride*size), int64(x.cols * size)
}

// read widens a matrix, of which every number must have been written.
func (d *Driver) read(x matrix) ([]float32, error) {
	all := make([]float32, x.rows*x.cols)
	for i := range x.rows {
		b, err := d.mem.Slice(x.row(i))
		if err != nil {
			return nil, err
		}
		load(x.format, b, all[i*x.cols:(i+1)*x.cols])
	}
	return all, nil
}

func (d *Driver) write(x matrix, all []float32) error {
	for i := range x.rows {
		b, err := d.mem.SliceForWrite(x.row(i))
		if err != nil {
			return err
		}
		store(x.format, b, all[i*x.cols:(i+1)*x.cols])
	}
	return nil
}

// multiply sums in f32 along k: operands in f32 by multiplications and additions, others as tensor
// cores do.
func (d *Driver) multiply(capability [2]int, a, b, out matrix, add bool) error {
	left, err := d.read(a)
	if err != nil {
		return err
	}
	right, err := d.read(b)
	if err != nil {
		return err
	}
	sum := make([]float32, out.rows*out.cols)
	if add {
		if sum, err = d.read(out); err != nil {
			return err
		}
	}
	product := dots
	if a.format != driver.F32 {
		product = func(left, right []float32, m, n, k int) []float32 {
			return ptx.Product(capability, left, right, m, n, k, a.format == driver.TF32)
		}
	}
	for i, v := range product(left, right, a.rows, b.rows, a.cols) {
		sum[i] += v
	}
	return d.write(out, sum)
}

// dots returns the products of the rows of two matrices in f32.
func dots(a, b []float32, m, n, k int) []float32 {
	all := make([]float32, m*n)
	for i := range all {
		all[i] = dot(a[i/n*k:][:k], b[i%n*k:][:k])
	}
	return all
}

func dot(a, b []float32) (sum float32) {
	b = b[:len(a)]
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

func (g *gemm) Close() error { return g.shutAlone("cublasDestroy_v2", g, &g.closed) }

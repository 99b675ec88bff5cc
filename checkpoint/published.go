package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/krait-ml/krait/checkpoint/safetensors"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/models"
)

// publishedSet is the weights of a folder in 8 or 4 bits, whose codes and scales are tensors of
// their own. A matrix is one tensor here, in the blocks of [graph.Parts], which are made when they
// are first asked for, and again where no rank holds them any more.
type publishedSet struct {
	*tensorSet
	quant  *models.Quantization
	coded  map[string]*coded
	hidden map[string]bool // names of the files that are parts of coded, or of activations
	wide   map[string]bool // coded ones that become f32, since not all that use them take blocks
}

// coded is a matrix, or several, in a block format.
type coded struct {
	format graph.DType
	shape  []int
	from   string   // for errors
	files  []string // the tensors that it is made of
	rows   func() (rowReader, error)
	mutex  sync.Mutex
	made   weak.Pointer[byte]
}

// rowReader fills the blocks of a row.
type rowReader func(r int, parts []graph.Parts) error

// readers find a matrix by a tensor of the files: nil if that is no matter of theirs.
var readers = []func(w *publishedSet, t safetensors.Tensor) (name string, c *coded, err error){readFP8, readFP4, readGPTQ, readInt4}

// activations are the ends of names of scales of activations and of caches, which stay in floats
// here.
var activations = []string{".input_scale", ".input_global_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale", ".k_proj.output_scale"}

// published finds the matrices of a folder.
func published(set *tensorSet, q *models.Quantization) (weights, error) {
	w := &publishedSet{tensorSet: set, quant: q, coded: map[string]*coded{}, hidden: map[string]bool{}, wide: map[string]bool{}}
	var errs []error
	for _, name := range set.Names() {
		if slices.ContainsFunc(activations, func(end string) bool { return strings.HasSuffix(name, end) }) {
			w.hidden[name] = true
			continue
		}
		t, _ := set.Set.Tensor(name)
		if err := w.find(t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", set.from(name), err))
		}
	}
	if len(errs) > 0 {
		set.Close()
		return nil, errors.Join(errs[:min(len(errs), 5)]...)
	}
	return w, nil
}

// find takes a tensor of the files, if it is the codes of a matrix.
func (w *publishedSet) find(t safetensors.Tensor) error {
	for _, read := range readers {
		name, c, err := read(w, t)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		if _, twice := w.Set.Tensor(name); twice && name != t.Name || w.coded[name] != nil {
			return fmt.Errorf("the file has %s as well", name)
		}
		c.from = w.from(t.Name)
		w.coded[name] = c
		for _, part := range c.files {
			w.hidden[part] = part != name
		}
		return nil
	}
	return w.unscaled(t)
}

// unscaled reports a float matrix that has scales, and is not excluded.
func (w *publishedSet) unscaled(t safetensors.Tensor) error {
	module := strings.TrimSuffix(t.Name, ".weight")
	for _, end := range scaleEnds {
		if _, ok := w.Set.Tensor(t.Name + end); !ok || floats[t.DType] == graph.NoDType {
			continue
		}
		if !w.quant.Excludes(module) {
			return fmt.Errorf("it is %s and has scales (%s), and quantization_config does not exclude %s", t.DType, t.Name+end, module)
		}
		w.hidden[t.Name+end] = true
	}
	return nil
}

func (w *publishedSet) Names() []string {
	names := slices.DeleteFunc(w.Set.Names(), func(name string) bool { return w.hidden[name] && w.coded[name] == nil })
	for name := range w.coded {
		if _, ok := w.Set.Tensor(name); !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *publishedSet) Look(name string) (graph.Array, bool) {
	c := w.coded[name]
	if c == nil {
		return w.tensorSet.Look(name)
	}
	a := graph.Array{DType: c.format, Shape: c.shape, From: c.from}
	if w.wide[name] {
		a.DType = graph.F32
	}
	return a, true
}

func (w *publishedSet) Tensor(name string) (graph.Array, error) {
	c := w.coded[name]
	if c == nil {
		return w.tensorSet.Tensor(name)
	}
	a := graph.Array{DType: c.format, Shape: c.shape, From: c.from}
	var err error
	if a.Data, err = c.blocks(); err != nil {
		return graph.Array{}, fmt.Errorf("%s: %w", c.from, err)
	}
	if w.wide[name] {
		return a.Convert(graph.F32)
	}
	return a, nil
}

func (w *publishedSet) Same(a, b string) bool {
	c, d := w.coded[a], w.coded[b]
	if c == nil || d == nil {
		return c == d && w.tensorSet.Same(a, b)
	}
	return slices.EqualFunc(c.files, d.files, func(x, y string) bool {
		t, _ := w.Set.Tensor(x)
		u, _ := w.Set.Tensor(y)
		return t.DType == u.DType && bytes.Equal(t.Data, u.Data)
	})
}

// keep widens the matrices that kernels cannot have in blocks.
func (w *publishedSet) keep(inBlocks map[string][]int) {
	for name := range w.coded {
		_, ok := inBlocks[name]
		w.wide[name] = !ok
	}
}

// blocks lays codes and scales together, once for all that ask at a time.
func (c *coded) blocks() ([]byte, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	f, last := c.format.Format(), len(c.shape)-1
	rows, count := 1, f.Count(c.shape[last])
	for _, n := range c.shape[:last] {
		rows *= n
	}
	line := count * f.Bytes
	if p := c.made.Value(); p != nil {
		return unsafe.Slice(p, rows*line), nil
	}
	data := make([]byte, rows*line)
	if len(data) == 0 {
		return data, nil
	}
	var read rowReader
	err := files.Guard(func() (err error) {
		read, err = c.rows()
		return err
	})
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	var work sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for i := range errs {
		work.Go(func() {
			errs[i] = files.Guard(func() error {
				parts := newParts(f, count)
				for r := int(next.Add(1)) - 1; r < rows; r = int(next.Add(1)) - 1 {
					if err := read(r, parts); err != nil {
						return fmt.Errorf("row %d: %w", r, err)
					}
					for k := range parts {
						c.format.Pack(data[r*line+k*f.Bytes:][:f.Bytes], &parts[k])
					}
				}
				return nil
			})
		})
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.made = weak.Make(&data[0])
	return data, nil
}

func newParts(f *graph.Format, count int) []graph.Parts {
	parts := make([]graph.Parts, count)
	for k := range parts {
		parts[k] = graph.Parts{Codes: make([]byte, f.Elems), Scales: make([]byte, 8)}
	}
	return parts
}

// need is a part that must be there, of a shape and one of some formats.
func (w *publishedSet) need(name string, shape []int, dtypes ...string) (safetensors.Tensor, error) {
	t, ok := w.Set.Tensor(name)
	if !ok {
		return t, fmt.Errorf("%s is missing", name)
	}
	if !slices.Contains(dtypes, t.DType) || !slices.Equal(t.Shape, shape) {
		return t, fmt.Errorf("%s is %s %v; it must be %s %v", name, t.DType, t.Shape, strings.Join(dtypes, " or "), shape)
	}
	return t, nil
}

// scalesOf are the numbers of a tensor of scales: floats, or powers of two (E8M0).
func scalesOf(t safetensors.Tensor) ([]float32, error) {
	out := make([]float32, 0, len(t.Data))
	if t.DType == "U8" || t.DType == "F8_E8M0" {
		for _, code := range t.Data {
			out = append(out, graph.PowerOfTwo(code))
		}
	} else {
		wide, err := t.Float64s()
		if err != nil {
			return nil, err
		}
		for _, v := range wide {
			out = append(out, float32(v))
		}
	}
	for i, v := range out {
		if v-v != 0 {
			return nil, fmt.Errorf("%s is damaged: scale %d is %g", t.Name, i, v)
		}
	}
	return out, nil
}

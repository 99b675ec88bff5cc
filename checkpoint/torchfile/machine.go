package torchfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/bail"
	"github.com/krait-ml/krait/internal/files"
)

// machine runs a program of Python's pickle, protocols 2 to 5, as far as state dicts go.
type machine struct {
	program []byte
	at      int
	stack   []any
	marks   []int
	memo    map[uint32]any
	storage func(key string) ([]byte, error)
}

// Values of the machine, besides string, int64, float64, bool, nil and *Tensor.
type (
	dict  struct{ pairs []pair }
	pair  struct{ key, value any }
	list  struct{ items []any }
	tuple []any
	// global is a name that the program may say; nothing of Python stands behind it.
	global string
	// stored is a storage of numbers.
	stored struct {
		dtype string
		elems int64
		data  []byte
	}
)

// kind says what a value is.
func kind(v any) string {
	switch v := v.(type) {
	case *dict:
		return "a dict"
	case *list:
		return "a list"
	case tuple:
		return "a tuple"
	case *Tensor:
		return "a tensor"
	case *stored:
		return "a storage"
	case global:
		return string(v)
	case string:
		return "the text " + files.Quote(v)
	case nil:
		return "None"
	}
	return fmt.Sprintf("the number %v", v)
}

// dtypes maps PyTorch's storage classes to dtypes.
var dtypes = map[global]struct {
	name string
	size int64
}{
	"torch.FloatStorage": {"F32", 4}, "torch.DoubleStorage": {"F64", 8}, "torch.HalfStorage": {"F16", 2}, "torch.BFloat16Storage": {"BF16", 2},
	"torch.LongStorage": {"I64", 8}, "torch.IntStorage": {"I32", 4}, "torch.ShortStorage": {"I16", 2}, "torch.CharStorage": {"I8", 1},
	"torch.ByteStorage": {"U8", 1}, "torch.BoolStorage": {"BOOL", 1},
}

// The functions that a program may call. None is: what they make is made here.
const (
	ordered   global = "collections.OrderedDict"
	rebuild   global = "torch._utils._rebuild_tensor_v2"
	parameter global = "torch._utils._rebuild_parameter"
)

// maxStack bounds the values on the stack.
const maxStack = 1 << 20

// run runs the program; the other methods panic with its first error.
func (m *machine) run() (_ any, err error) {
	defer bail.Catch(&err)
	for {
		op := m.take(1)
		if op[0] == '.' {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				panic(fmt.Errorf("the program ends with %d values", len(m.stack)))
			}
			return m.stack[0], nil
		}
		m.step(op[0])
		if len(m.stack) > maxStack || len(m.memo) > maxStack || len(m.marks) > maxStack {
			panic(fmt.Errorf("the program has more than %d values", maxStack))
		}
	}
}

// step does one operation.
func (m *machine) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if b := m.take(1); b[0] < 2 || b[0] > 5 {
			panic(fmt.Errorf("protocol %d of pickle; Krait reads 2 to 5", b[0]))
		}
	case 0x95: // FRAME
		m.take(8)
	case '(':
		m.marks = append(m.marks, len(m.stack))
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case '}':
		m.push(&dict{})
	case ']':
		m.push(&list{})
	case ')':
		m.push(tuple{})
	case 'K', 'M', 'J', 0x8a, 'G':
		m.push(m.number(op))
	case 'X', 0x8c, 0x8d:
		m.push(m.text(op))
	case 'q', 'r', 'h', 'j', 0x94:
		m.remember(op)
	case 0x85, 0x86, 0x87:
		m.push(tuple(m.pop(int(op - 0x84))))
	case 't':
		m.push(tuple(m.marked()))
	case 's', 'u', 'a', 'e':
		m.fill(op)
	case 'c', 0x93, 'Q', 'R', 'b':
		m.push(m.call(op))
	default:
		panic(fmt.Errorf("operation 0x%02x (%s) of pickle, which the state dict of a model does not take: refused", op, opNames[op]))
	}
}

// opNames are some operations that are refused.
var opNames = map[byte]string{
	'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 'P': "PERSID", 'g': "GET", 'p': "PUT", 'I': "INT", 'L': "LONG", 'S': "STRING", 'F': "FLOAT",
	'U': "SHORT_BINSTRING", 'T': "BINSTRING", 'B': "BINBYTES", 'C': "SHORT_BINBYTES", 0x8b: "LONG4", 0x8e: "BINBYTES8", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS",
	0x91: "FROZENSET", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER", '0': "POP", '1': "POP_MARK", '2': "DUP", 'l': "LIST", 'd': "DICT",
}

func (m *machine) take(n int) []byte {
	if n < 0 || n > len(m.program)-m.at {
		panic(errShort)
	}
	m.at += n
	return m.program[m.at-n : m.at]
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// pop takes n values that no mark is among.
func (m *machine) pop(n int) []any {
	low := 0
	if len(m.marks) > 0 {
		low = m.marks[len(m.marks)-1]
	}
	if len(m.stack)-n < low {
		panic(fmt.Errorf("the program takes %d values, and there are %d", n, len(m.stack)-low))
	}
	v := slices.Clone(m.stack[len(m.stack)-n:])
	m.stack = m.stack[:len(m.stack)-n]
	return v
}

// marked takes the values after the last mark, and the mark.
func (m *machine) marked() []any {
	if len(m.marks) == 0 {
		panic(fmt.Errorf("the program takes values after a mark, and there is none"))
	}
	v := m.pop(len(m.stack) - m.marks[len(m.marks)-1])
	m.marks = m.marks[:len(m.marks)-1]
	return v
}

func (m *machine) number(op byte) any {
	sizes := map[byte]int{'K': 1, 'M': 2, 'J': 4, 'G': 8, 0x8a: 1}
	b := m.take(sizes[op])
	switch op {
	case 'K':
		return int64(b[0])
	case 'M':
		return int64(binary.LittleEndian.Uint16(b))
	case 'J':
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case 'G':
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	if b = m.take(int(b[0])); len(b) > 8 { // LONG1
		panic(fmt.Errorf("a number of %d bytes", len(b)))
	}
	var n int64
	for i, x := range b {
		n |= int64(x) << (8 * i)
	}
	if k := len(b); k > 0 && k < 8 && b[k-1]&0x80 != 0 {
		n -= 1 << (8 * k)
	}
	return n
}

func (m *machine) text(op byte) any {
	size := map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8}[op]
	b := m.take(size)
	var wide [8]byte
	copy(wide[:], b)
	n := binary.LittleEndian.Uint64(wide[:])
	if n > uint64(len(m.program)) {
		panic(errShort)
	}
	return string(m.take(int(n)))
}

// remember keeps the last value under a number, or brings one back.
func (m *machine) remember(op byte) {
	size := map[byte]int{'q': 1, 'h': 1, 'r': 4, 'j': 4, 0x94: 0}[op]
	b := m.take(size)
	var wide [4]byte
	copy(wide[:], b)
	key := binary.LittleEndian.Uint32(wide[:])
	if op == 'h' || op == 'j' {
		v, ok := m.memo[key]
		if !ok {
			panic(fmt.Errorf("the program asks for value %d, which it did not keep", key))
		}
		m.push(v)
		return
	}
	if op == 0x94 {
		key = uint32(len(m.memo))
	}
	m.memo[key] = m.pop(1)[0]
	m.push(m.memo[key])
}

// fill puts values into the dict or the list below them.
func (m *machine) fill(op byte) {
	var v []any
	switch op {
	case 's':
		v = m.pop(2)
	case 'a':
		v = m.pop(1)
	default:
		v = m.marked()
	}
	into := m.pop(1)[0]
	m.push(into)
	switch to := into.(type) {
	case *dict:
		if op == 'a' || op == 'e' || len(v)%2 != 0 {
			panic(fmt.Errorf("a dict is given %d values that are no pairs", len(v)))
		}
		for i := 0; i < len(v); i += 2 {
			to.pairs = append(to.pairs, pair{v[i], v[i+1]})
		}
		return
	case *list:
		if op == 'a' || op == 'e' {
			to.items = append(to.items, v...)
			return
		}
	}
	panic(fmt.Errorf("values are put into %s", kind(into)))
}

// call is what a name, or a call, stands for.
func (m *machine) call(op byte) any {
	switch op {
	case 'c':
		var parts [2]string
		for i := range parts {
			n := bytes.IndexByte(m.program[m.at:], '\n')
			if n < 0 {
				panic(errShort)
			}
			parts[i] = string(m.program[m.at : m.at+n])
			m.at += n + 1
		}
		return named(parts[0], parts[1])
	case 0x93: // STACK_GLOBAL
		v := m.pop(2)
		a, ok1 := v[0].(string)
		b, ok2 := v[1].(string)
		if !ok1 || !ok2 {
			panic(fmt.Errorf("a name that is %s and %s", kind(v[0]), kind(v[1])))
		}
		return named(a, b)
	case 'Q':
		return m.load(m.pop(1)[0])
	case 'b': // BUILD, which gives an object attributes: a state dict has _metadata
		v := m.pop(2)
		if _, ok := v[0].(*dict); !ok {
			panic(fmt.Errorf("%s is given attributes", kind(v[0])))
		}
		return v[0]
	}
	v := m.pop(2)
	args, ok := v[1].(tuple)
	if !ok {
		panic(fmt.Errorf("%s is called with %s", kind(v[0]), kind(v[1])))
	}
	return m.make(v[0], args)
}

// named is a global, if the state dict of a model takes it.
func named(module, name string) global {
	g := global(module + "." + name)
	if _, ok := dtypes[g]; !ok && g != ordered && g != rebuild && g != parameter {
		panic(fmt.Errorf("the program names %s, which the state dict of a model does not take: refused", files.Quote(string(g))))
	}
	return g
}

// load is a storage, as ("storage", class, key, device, elements) names it.
func (m *machine) load(id any) any {
	t, _ := id.(tuple)
	if len(t) != 5 || t[0] != "storage" {
		panic(fmt.Errorf("a storage is named by %s", kind(id)))
	}
	class, _ := t[1].(global)
	d, ok := dtypes[class]
	key, ok2 := t[2].(string)
	n, ok3 := t[4].(int64)
	if !ok || !ok2 || !ok3 || n < 0 || n > math.MaxInt64/8 || strings.ContainsAny(key, "/\\") {
		panic(fmt.Errorf("a storage is named by %s, %s and %s", kind(t[1]), kind(t[2]), kind(t[4])))
	}
	data := bail.Of(m.storage(key))
	if int64(len(data)) != n*d.size {
		panic(fmt.Errorf("storage %s has %d bytes; %d elements of %s have %d", files.Quote(key), len(data), n, d.name, n*d.size))
	}
	return &stored{d.name, n, data}
}

// make is what a call makes.
func (m *machine) make(f any, args tuple) any {
	switch {
	case f == ordered && len(args) == 0:
		return &dict{}
	case f == parameter && len(args) == 3:
		if t, ok := args[0].(*Tensor); ok {
			return t
		}
	case f == rebuild && (len(args) == 6 || len(args) == 7):
		return tensorOf(args)
	}
	panic(fmt.Errorf("%s is called with %d values", kind(f), len(args)))
}

// tensorOf is a tensor of a storage: args are it, where it begins, shape, strides, and
// what is of no use here.
func tensorOf(args tuple) any {
	s, ok1 := args[0].(*stored)
	begin, ok2 := args[1].(int64)
	shape, ok3 := numbers(args[2])
	strides, ok4 := numbers(args[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || len(shape) != len(strides) || len(shape) > 16 || begin < 0 {
		panic(fmt.Errorf("a tensor is made of %s, %s, %s and %s", kind(args[0]), kind(args[1]), kind(args[2]), kind(args[3])))
	}
	t := &Tensor{DType: s.dtype, Shape: make([]int, len(shape))}
	for i, d := range shape {
		t.Shape[i] = int(d)
	}
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 1 && strides[i] != n {
			panic(fmt.Errorf("a tensor of shape %v has strides %v; Krait reads those that are contiguous: save the model after .contiguous()", shape, strides))
		}
		if n *= max(shape[i], 1); n > s.elems {
			break
		}
	}
	for _, d := range shape {
		if d == 0 {
			n, begin = 0, 0
		}
	}
	if begin > s.elems || n > s.elems-begin {
		panic(fmt.Errorf("a tensor of shape %v from element %d on is in a storage of %d elements", shape, begin, s.elems))
	}
	size := int64(1)
	if s.elems > 0 {
		size = int64(len(s.data)) / s.elems
	}
	t.Data = s.data[begin*size : (begin+n)*size : (begin+n)*size]
	return t
}

func numbers(v any) ([]int64, bool) {
	t, ok := v.(tuple)
	out := make([]int64, 0, len(t))
	for _, x := range t {
		n, is := x.(int64)
		ok = ok && is && n >= 0 && n <= math.MaxInt32
		out = append(out, n)
	}
	return out, ok
}

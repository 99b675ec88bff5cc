package torchfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

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

func (m *machine) run() (any, error) {
	for {
		op, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			if len(m.stack) != 1 || len(m.marks) != 0 {
				return nil, fmt.Errorf("the program ends with %d values", len(m.stack))
			}
			return m.stack[0], nil
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
		if len(m.stack) > maxStack || len(m.memo) > maxStack || len(m.marks) > maxStack {
			return nil, fmt.Errorf("the program has more than %d values", maxStack)
		}
	}
}

// step does one operation.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		b, err := m.take(1)
		if err == nil && (b[0] < 2 || b[0] > 5) {
			err = fmt.Errorf("protocol %d of pickle; Krait reads 2 to 5", b[0])
		}
		return err
	case 0x95: // FRAME
		_, err := m.take(8)
		return err
	case '(':
		m.marks = append(m.marks, len(m.stack))
		return nil
	case 'N':
		return m.push(nil, nil)
	case 0x88, 0x89:
		return m.push(op == 0x88, nil)
	case '}':
		return m.push(&dict{}, nil)
	case ']':
		return m.push(&list{}, nil)
	case ')':
		return m.push(tuple{}, nil)
	case 'K', 'M', 'J', 0x8a, 'G':
		return m.push(m.number(op))
	case 'X', 0x8c, 0x8d:
		return m.push(m.text(op))
	case 'q', 'r', 'h', 'j', 0x94:
		return m.remember(op)
	case 0x85, 0x86, 0x87:
		v, err := m.pop(int(op - 0x84))
		return m.push(tuple(v), err)
	case 't':
		v, err := m.marked()
		return m.push(tuple(v), err)
	case 's', 'u', 'a', 'e':
		return m.fill(op)
	case 'c', 0x93, 'Q', 'R', 'b':
		return m.call(op)
	}
	return fmt.Errorf("operation 0x%02x (%s) of pickle, which the state dict of a model does not take: refused", op, opNames[op])
}

// opNames are some operations that are refused.
var opNames = map[byte]string{
	'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 'P': "PERSID", 'g': "GET", 'p': "PUT", 'I': "INT", 'L': "LONG", 'S': "STRING", 'F': "FLOAT",
	'U': "SHORT_BINSTRING", 'T': "BINSTRING", 'B': "BINBYTES", 'C': "SHORT_BINBYTES", 0x8b: "LONG4", 0x8e: "BINBYTES8", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS",
	0x91: "FROZENSET", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER", '0': "POP", '1': "POP_MARK", '2': "DUP", 'l': "LIST", 'd': "DICT",
}

func (m *machine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.program)-m.at {
		return nil, errShort
	}
	m.at += n
	return m.program[m.at-n : m.at], nil
}

func (m *machine) push(v any, err error) error {
	if err == nil {
		m.stack = append(m.stack, v)
	}
	return err
}

// pop takes n values that no mark is among.
func (m *machine) pop(n int) ([]any, error) {
	low := 0
	if len(m.marks) > 0 {
		low = m.marks[len(m.marks)-1]
	}
	if len(m.stack)-n < low {
		return nil, fmt.Errorf("the program takes %d values, and there are %d", n, len(m.stack)-low)
	}
	v := slices.Clone(m.stack[len(m.stack)-n:])
	m.stack = m.stack[:len(m.stack)-n]
	return v, nil
}

// marked takes the values after the last mark, and the mark.
func (m *machine) marked() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, fmt.Errorf("the program takes values after a mark, and there is none")
	}
	v, err := m.pop(len(m.stack) - m.marks[len(m.marks)-1])
	m.marks = m.marks[:len(m.marks)-1]
	return v, err
}

func (m *machine) number(op byte) (any, error) {
	sizes := map[byte]int{'K': 1, 'M': 2, 'J': 4, 'G': 8, 0x8a: 1}
	b, err := m.take(sizes[op])
	if err != nil {
		return nil, err
	}
	switch op {
	case 'K':
		return int64(b[0]), nil
	case 'M':
		return int64(binary.LittleEndian.Uint16(b)), nil
	case 'J':
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	case 'G':
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	}
	if b, err = m.take(int(b[0])); err != nil || len(b) > 8 { // LONG1
		return nil, fmt.Errorf("a number of %d bytes", len(b))
	}
	var n int64
	for i, x := range b {
		n |= int64(x) << (8 * i)
	}
	if k := len(b); k > 0 && k < 8 && b[k-1]&0x80 != 0 {
		n -= 1 << (8 * k)
	}
	return n, nil
}

func (m *machine) text(op byte) (any, error) {
	size := map[byte]int{'X': 4, 0x8c: 1, 0x8d: 8}[op]
	b, err := m.take(size)
	if err != nil {
		return nil, err
	}
	var wide [8]byte
	copy(wide[:], b)
	n := binary.LittleEndian.Uint64(wide[:])
	if n > uint64(len(m.program)) {
		return nil, errShort
	}
	b, err = m.take(int(n))
	return string(b), err
}

// remember keeps the last value under a number, or brings one back.
func (m *machine) remember(op byte) error {
	size := map[byte]int{'q': 1, 'h': 1, 'r': 4, 'j': 4, 0x94: 0}[op]
	b, err := m.take(size)
	if err != nil {
		return err
	}
	var wide [4]byte
	copy(wide[:], b)
	key := binary.LittleEndian.Uint32(wide[:])
	if op == 'h' || op == 'j' {
		v, ok := m.memo[key]
		if !ok {
			return fmt.Errorf("the program asks for value %d, which it did not keep", key)
		}
		return m.push(v, nil)
	}
	if op == 0x94 {
		key = uint32(len(m.memo))
	}
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	m.memo[key] = v[0]
	return m.push(v[0], nil)
}

// fill puts values into the dict or the list below them.
func (m *machine) fill(op byte) error {
	var v []any
	var err error
	switch op {
	case 's':
		v, err = m.pop(2)
	case 'a':
		v, err = m.pop(1)
	default:
		v, err = m.marked()
	}
	if err != nil {
		return err
	}
	into, err := m.pop(1)
	if err != nil {
		return err
	}
	m.stack = append(m.stack, into[0])
	switch to := into[0].(type) {
	case *dict:
		if op == 'a' || op == 'e' || len(v)%2 != 0 {
			return fmt.Errorf("a dict is given %d values that are no pairs", len(v))
		}
		for i := 0; i < len(v); i += 2 {
			to.pairs = append(to.pairs, pair{v[i], v[i+1]})
		}
		return nil
	case *list:
		if op == 'a' || op == 'e' {
			to.items = append(to.items, v...)
			return nil
		}
	}
	return fmt.Errorf("values are put into %s", kind(into[0]))
}

// call does what names and calls stand for.
func (m *machine) call(op byte) error {
	switch op {
	case 'c':
		var parts [2]string
		for i := range parts {
			n := bytes.IndexByte(m.program[m.at:], '\n')
			if n < 0 {
				return errShort
			}
			parts[i] = string(m.program[m.at : m.at+n])
			m.at += n + 1
		}
		return m.name(parts[0], parts[1])
	case 0x93: // STACK_GLOBAL
		v, err := m.pop(2)
		if err != nil {
			return err
		}
		a, ok1 := v[0].(string)
		b, ok2 := v[1].(string)
		if !ok1 || !ok2 {
			return fmt.Errorf("a name that is %s and %s", kind(v[0]), kind(v[1]))
		}
		return m.name(a, b)
	case 'Q':
		v, err := m.pop(1)
		if err != nil {
			return err
		}
		return m.push(m.load(v[0]))
	case 'b': // BUILD, which gives an object attributes: a state dict has _metadata
		v, err := m.pop(2)
		if _, ok := last(v, 2).(*dict); err == nil && !ok {
			err = fmt.Errorf("%s is given attributes", kind(last(v, 2)))
		}
		return m.push(last(v, 2), err)
	}
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	args, ok := v[1].(tuple)
	if !ok {
		return fmt.Errorf("%s is called with %s", kind(v[0]), kind(v[1]))
	}
	return m.push(m.make(v[0], args))
}

// last is the nth value from the end.
func last(v []any, n int) any {
	if len(v) < n {
		return nil
	}
	return v[len(v)-n]
}

// name is a global, if the state dict of a model takes it.
func (m *machine) name(module, name string) error {
	g := global(module + "." + name)
	if _, ok := dtypes[g]; !ok && g != ordered && g != rebuild && g != parameter {
		return fmt.Errorf("the program names %s, which the state dict of a model does not take: refused", files.Quote(string(g)))
	}
	return m.push(g, nil)
}

// load is a storage, as ("storage", class, key, device, elements) names it.
func (m *machine) load(id any) (any, error) {
	t, _ := id.(tuple)
	if len(t) != 5 || t[0] != "storage" {
		return nil, fmt.Errorf("a storage is named by %s", kind(id))
	}
	class, _ := t[1].(global)
	d, ok := dtypes[class]
	key, ok2 := t[2].(string)
	n, ok3 := t[4].(int64)
	if !ok || !ok2 || !ok3 || n < 0 || n > math.MaxInt64/8 || strings.ContainsAny(key, "/\\") {
		return nil, fmt.Errorf("a storage is named by %s, %s and %s", kind(t[1]), kind(t[2]), kind(t[4]))
	}
	data, err := m.storage(key)
	if err == nil && int64(len(data)) != n*d.size {
		err = fmt.Errorf("storage %s has %d bytes; %d elements of %s have %d", files.Quote(key), len(data), n, d.name, n*d.size)
	}
	return &stored{d.name, n, data}, err
}

// make is what a call makes.
func (m *machine) make(f any, args tuple) (any, error) {
	switch {
	case f == ordered && len(args) == 0:
		return &dict{}, nil
	case f == parameter && len(args) == 3:
		if t, ok := args[0].(*Tensor); ok {
			return t, nil
		}
	case f == rebuild && (len(args) == 6 || len(args) == 7):
		return tensorOf(args)
	}
	return nil, fmt.Errorf("%s is called with %d values", kind(f), len(args))
}

// tensorOf is a tensor of a storage: args are it, where it begins, shape, strides, and
// what is of no use here.
func tensorOf(args tuple) (any, error) {
	s, ok1 := args[0].(*stored)
	begin, ok2 := args[1].(int64)
	shape, ok3 := numbers(args[2])
	strides, ok4 := numbers(args[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || len(shape) != len(strides) || len(shape) > 16 || begin < 0 {
		return nil, fmt.Errorf("a tensor is made of %s, %s, %s and %s", kind(args[0]), kind(args[1]), kind(args[2]), kind(args[3]))
	}
	t := &Tensor{DType: s.dtype, Shape: make([]int, len(shape))}
	for i, d := range shape {
		t.Shape[i] = int(d)
	}
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 1 && strides[i] != n {
			return nil, fmt.Errorf("a tensor of shape %v has strides %v; Krait reads those that are contiguous: save the model after .contiguous()", shape, strides)
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
		return nil, fmt.Errorf("a tensor of shape %v from element %d on is in a storage of %d elements", shape, begin, s.elems)
	}
	size := int64(1)
	if s.elems > 0 {
		size = int64(len(s.data)) / s.elems
	}
	t.Data = s.data[begin*size : (begin+n)*size : (begin+n)*size]
	return t, nil
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

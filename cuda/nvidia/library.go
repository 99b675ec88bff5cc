//go:build linux && (amd64 || arm64)

package nvidia

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/krait-ml/krait/cuda/driver"
)

// symbol is the index of a function in the names of its library.
type symbol int

// library is an opened library, whose functions return 0 or a code.
type library struct {
	path  string
	names []string
	addrs []uintptr // by symbol
	fail  func(call string, code int) *driver.Error
}

// call calls a function. Pointers to Go memory are to be converted in the
// argument list itself, which keeps what they point to alive, on the heap.
//
//go:uintptrescapes
func (l *library) call(f symbol, args ...uintptr) error {
	return l.quick(f, args...)
}

// quick is call without that: it allocates nothing, and takes no pointers but
// those into memory that neither moves nor dies.
func (l *library) quick(f symbol, args ...uintptr) error {
	if n := l.code(f, args...); n != 0 {
		return l.fail(l.names[f], n)
	}
	return nil
}

// code is quick for functions whose code need not be an error.
func (l *library) code(f symbol, args ...uintptr) int {
	a := arguments.Get().(*[maxArguments]uintptr)
	defer arguments.Put(a)
	r, _, _ := purego.SyscallN(l.addrs[f], a[:copy(a[:], args)]...)
	return int(int32(r))
}

// maxArguments is what ncclCommInitRank takes.
const maxArguments = 22

// arguments are reused: a slice handed to SyscallN is otherwise allocated anew.
var arguments = sync.Pool{New: func() any { return new([maxArguments]uintptr) }}

// bind finds all functions.
func (l *library) bind(handle uintptr) (missing string) {
	l.addrs = make([]uintptr, len(l.names))
	for i, name := range l.names {
		addr, err := purego.Dlsym(handle, name)
		if err != nil {
			return name
		}
		l.addrs[i] = addr
	}
	l.path = fileOf(l.addrs[0])
	return ""
}

// fileOf is the file that a function was loaded from, or "" if unknown.
func fileOf(addr uintptr) string {
	dladdr, err := purego.Dlsym(purego.RTLD_DEFAULT, "dladdr")
	if err != nil {
		return ""
	}
	var info struct {
		file *byte
		rest [3]uintptr
	}
	if r, _, _ := purego.SyscallN(dladdr, addr, uintptr(unsafe.Pointer(&info))); r == 0 {
		return ""
	}
	return text(info.file)
}

// text copies a C string.
func text(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// codeOf is the number that a call returned.
func codeOf(err error) int {
	if e, ok := err.(*driver.Error); ok {
		return e.Code
	}
	return 0
}

// because adds a detail to the error of a call.
func because(err error, format string, args ...any) error {
	if e, ok := err.(*driver.Error); ok {
		return e.Because(format, args...)
	}
	return err
}

//go:build linux && (amd64 || arm64)

package nvidia

import (
	"bytes"
	"runtime"
	"strings"
	"unsafe"

	"github.com/krait-ml/krait/cuda/driver"
)

// module is compiled PTX.
type module struct {
	*primary
	name   string
	handle uintptr // 0 when closed
}

// Module compiles PTX; what the compiler says is in the error. The driver keeps
// what it compiled on disk.
func (c *primary) Module(ptx []byte, name string) (driver.Module, error) {
	const infoLog, infoSize, errorLog, errorSize = 3, 4, 5, 6 // CU_JIT_…
	if err := c.current(cuModuleLoadDataEx); err != nil {
		return nil, err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	image := append(bytes.TrimRight(bytes.Clone(ptx), "\x00"), 0)
	logs := new([2][8192]byte)
	pin.Pin(logs)
	options := [4]int32{infoLog, infoSize, errorLog, errorSize}
	values := [4]uintptr{uintptr(unsafe.Pointer(&logs[0])), uintptr(len(logs[0])), uintptr(unsafe.Pointer(&logs[1])), uintptr(len(logs[1]))}
	m := &module{primary: c, name: name}
	err := c.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if err != nil {
		log := strings.TrimSpace(line(logs[1][:]) + "\n" + line(logs[0][:]))
		return nil, because(err, "module %s for sm_%d%d\n%s", name, c.info.Capability[0], c.info.Capability[1], log)
	}
	return m, nil
}

func (m *module) Function(name string) (driver.Function, error) {
	if m.handle == 0 {
		return nil, closed("cuModuleGetFunction", "module")
	}
	f := &function{module: m, name: name}
	symbol := append([]byte(name), 0)
	if err := m.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(unsafe.SliceData(symbol)))); err != nil {
		return nil, because(err, "kernel %s in module %s", name, m.name)
	}
	return f, nil
}

func (m *module) Close() error {
	if m.handle == 0 {
		return closed("cuModuleUnload", "module")
	}
	handle := m.handle
	m.handle = 0
	return m.call(cuModuleUnload, handle)
}

// function is a kernel of a module.
type function struct {
	module *module
	name   string
	handle uintptr
}

func (f *function) Name() string { return f.name }

func (f *function) Attributes() (info driver.FunctionInfo, err error) {
	for _, q := range []struct {
		attribute uintptr // CU_FUNC_ATTRIBUTE_…
		into      *int
	}{{0, &info.MaxThreads}, {1, &info.Shared}, {3, &info.Local}, {4, &info.Registers}} {
		if f.module.handle == 0 {
			return info, closed("cuFuncGetAttribute", "module")
		}
		var n int32
		if err := f.module.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&n)), q.attribute, f.handle); err != nil {
			return info, because(err, "kernel %s", f.name)
		}
		*q.into = int(n)
	}
	return info, nil
}

func (f *function) SetMaxShared(bytes int) error {
	const maxDynamicShared = 8 // CU_FUNC_ATTRIBUTE_…
	if f.module.handle == 0 {
		return closed("cuFuncSetAttribute", "module")
	}
	err := f.module.call(cuFuncSetAttribute, f.handle, maxDynamicShared, uintptr(bytes))
	return because(err, "kernel %s asks %d bytes of shared memory; blocks of this device have at most %d", f.name, bytes, f.module.info.SharedMax)
}

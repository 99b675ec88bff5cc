package files

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"
)

// region is a file in memory by a map.
type region struct {
	name       string
	data       []byte
	begin, end uintptr
}

var mapped struct {
	sync.Mutex
	regions []*region
}

// Mapped says that data is the file of that name by a map, until forget is called:
// reads of what is not in the file any more are then errors that name it, in the
// goroutines that ask for them. See [Guard].
func Mapped(name string, data []byte) (forget func()) {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	r := &region{name, data, begin, begin + uintptr(len(data))}
	mapped.Lock()
	defer mapped.Unlock()
	mapped.regions = append(mapped.regions, r)
	return func() {
		mapped.Lock()
		defer mapped.Unlock()
		mapped.regions = slices.DeleteFunc(mapped.regions, func(x *region) bool { return x == r })
	}
}

// Release gives back the memory of the maps that these parts lie in: a part that is read again
// comes from the file, as it did at first.
func Release(parts [][]byte) {
	mapped.Lock()
	defer mapped.Unlock()
	for _, r := range mapped.regions {
		if slices.ContainsFunc(parts, r.has) {
			release(r.data)
		}
	}
}

func (r *region) has(part []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	return len(part) > 0 && r.begin <= at && at < r.end
}

// Guard runs f. Where f reads a mapped file that was cut meanwhile, that is an error; unguarded,
// the system ends the process. A guard is of one goroutine: others that read such files call
// debug.SetPanicOnFault(true) and take what they recover to [Recovered].
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if err = fault(p); err == nil {
				panic(p)
			}
		}
	}()
	return f()
}

// Recovered is a panic as an error: of the mapped file that could not be read, else a bug.
func Recovered(p any) error {
	if err := fault(p); err != nil {
		return err
	}
	return fmt.Errorf("BUG: %v", p)
}

// fault is the error of a panic that a read of a mapped file was, nil of others.
func fault(p any) error {
	at, ok := p.(interface{ Addr() uintptr })
	if !ok {
		return nil
	}
	mapped.Lock()
	defer mapped.Unlock()
	for _, r := range mapped.regions {
		if r.begin <= at.Addr() && at.Addr() < r.end {
			return Changed(r.name)
		}
	}
	return nil
}

// Changed is the error of a mapped file that is not what it was.
func Changed(name string) error {
	return fmt.Errorf("%s was changed or cut while it was mapped; open the model again (to replace a file in use, write another and rename it)", name)
}

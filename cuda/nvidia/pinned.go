//go:build linux && (amd64 || arm64)

package nvidia

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// blocks knows the pinned memory: a graph may only hold addresses of that,
// since it uses them long after the call.
type blocks struct {
	mu  sync.Mutex // of those who change it
	all atomic.Pointer[[][]byte]
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (l *blocks) load() [][]byte {
	if all := l.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (l *blocks) add(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(slices.Clone(l.load()), b)
	l.all.Store(&all)
}

// remove forgets exactly this block.
func (l *blocks) remove(b []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.load())
	i := slices.IndexFunc(all, func(have []byte) bool { return address(have) == address(b) && len(have) == len(b) })
	if i < 0 {
		return false
	}
	all = slices.Delete(all, i, i+1)
	l.all.Store(&all)
	return true
}

// hold says whether b lies in pinned memory.
func (l *blocks) hold(b []byte) bool {
	for _, have := range l.load() {
		if at := address(b) - address(have); at < uintptr(len(have)) && uintptr(len(b)) <= uintptr(len(have))-at {
			return true
		}
	}
	return false
}

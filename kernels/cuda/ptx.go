package cuda

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"strings"
	"sync"
)

//go:generate ./build.sh

//go:embed ptx/*.ptx.gz
var files embed.FS

// Runs reports whether the kernels run on GPUs of a compute capability: from 8.0 on.
func Runs(major, minor int) bool { return major >= 8 }

// PTX has the modules by name. Krait's are written for compute capability 8.0; drivers
// compile them for the GPU at hand when they are loaded.
func PTX() map[string][]byte { return allModules() }

// Source is the PTX to load for a launch, and a name of its own for what is loaded: of
// Krait's modules the launched kernel alone, since drivers compile all that they are given; a
// module that was registered is whole. Nil: there is no such kernel.
func (l *Launch) Source() (name string, text []byte) {
	if text, ok := own[l.Module]; ok {
		return l.Module, text
	}
	return l.Module + "." + l.Function, alone(embedded()[l.Module], l.Function)
}

// entryLine begins each kernel of a module. What stands before it is a declaration, of the
// module's scope.
const entryLine = "\n.visible .entry "

// alone is a module's text without kernels but one: declarations, then the kernel to the
// brace that ends it; nil where it has none of the name.
func alone(module []byte, kernel string) []byte {
	var text []byte
	found, at := false, 0
	for {
		from := max(at-1, 0) // the line's end before it
		next := bytes.Index(module[from:], []byte(entryLine))
		if next < 0 {
			break
		}
		begin := from + next + 1
		end := begin + bytes.Index(module[begin:], []byte("\n}\n")) + 3
		text = append(text, module[at:begin]...)
		if at = end; bytes.HasPrefix(module[begin+len(entryLine)-1:], []byte(kernel+"(")) {
			text, found = append(text, module[begin:end]...), true
		}
	}
	if !found {
		return nil
	}
	return append(text, module[at:]...)
}

var embedded = sync.OnceValue(func() map[string][]byte {
	entries, err := files.ReadDir("ptx")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	modules := map[string][]byte{}
	for _, e := range entries {
		text, err := unzip("ptx/" + e.Name())
		if err != nil {
			panic("BUG: " + e.Name() + ": " + err.Error())
		}
		modules[strings.TrimSuffix(e.Name(), ".ptx.gz")] = text
	}
	return modules
})

func unzip(name string) ([]byte, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

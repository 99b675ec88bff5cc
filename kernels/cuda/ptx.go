package cuda

import (
	"bytes"
	"embed"
	"io"
	"strings"
	"sync"

	"github.com/ulikunitz/xz"

	"github.com/krait-ml/krait/graph"
)

//go:generate ./build.sh

//go:embed ptx/*.xz
var files embed.FS

// Runs reports whether the kernels run on GPUs of a compute capability: from 8.0 on.
func Runs(major, minor int) bool { return major >= 8 }

// SplitPays reports whether, on GPUs of a compute capability, six products of bf16 take less time
// than one in f32, so that weights in f32 are taken apart, too: on those for data centers (8.0,
// 9.0, 10.0), whose tensor cores multiply bf16 some 15 times as fast as the others do f32. Others'
// are 2 to 4 times as fast.
func SplitPays(major, minor int) bool { return minor == 0 && major <= 10 }

// PTX returns the modules by name. Krait's are written for compute capability 8.0; drivers
// compile them for the GPU at hand when they are loaded.
func PTX() map[string][]byte { return allModules() }

// Source returns the PTX to load for a launch, and a unique name for it. From Krait's modules it is
// the launched kernel alone, since drivers compile all that they are given; a registered module is
// whole. Nil: the kernel does not exist.
func (l *Launch) Source() (name string, text []byte) {
	if text, ok := own[l.Module]; ok {
		return l.Module, text
	}
	return l.Module + "." + l.Function, alone(embedded(l.Module), l.Function)
}

// Registered reports whether the kernel is one that was registered, and no kernel of Krait's.
func (l *Launch) Registered() bool { return own[l.Module] != nil }

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

// embedded is the text of a module of Krait's; nil if no module has the name.
func embedded(module string) []byte {
	source := module
	for _, d := range []graph.DType{graph.F32, graph.F16, graph.BF16, graph.F8} {
		source = strings.TrimSuffix(source, "_"+format(d))
	}
	for d := range planes {
		if f := format(d); strings.HasSuffix(module, "_"+f) {
			source = f[:strings.IndexAny(f, "0123456789")]
		}
	}
	if of, ok := sources()[source]; ok {
		return of()[module]
	}
	return nil
}

// sources are the files of modules, by the name of what they were compiled from, or by the letters
// with which names of the blocks that they are for begin. Each is unpacked when one of its modules
// is first asked for.
var sources = sync.OnceValue(func() map[string]func() map[string][]byte {
	entries, err := files.ReadDir("ptx")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	all := map[string]func() map[string][]byte{}
	for _, e := range entries {
		all[strings.TrimSuffix(e.Name(), ".xz")] = sync.OnceValue(func() map[string][]byte {
			modules, err := unpack("ptx/" + e.Name())
			if err != nil {
				panic("BUG: " + e.Name() + ": " + err.Error())
			}
			return modules
		})
	}
	return all
})

// unpack reads a file of modules. Before each stands a line with its name, the only comments there
// are.
func unpack(name string) (map[string][]byte, error) {
	packed, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	modules := map[string][]byte{}
	for _, part := range bytes.Split(text, []byte("// "))[1:] {
		module, body, _ := bytes.Cut(part, []byte("\n"))
		modules[string(module)] = body
	}
	return modules, nil
}

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

package cuda

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:generate ./build.sh

//go:embed ptx/sm_80/*.ptx ptx/sm_90/*.ptx
var files embed.FS

// Arch is the folder of the kernels that suit a compute capability: "sm_90" from
// 9.0 on, "sm_80" from 8.0 on, and nothing below.
func Arch(major, minor int) string {
	switch {
	case major >= 9:
		return "sm_90"
	case major == 8:
		return "sm_80"
	}
	return ""
}

// PTX has the modules of an architecture by name; nil if there are none for it.
// Drivers compile them when they are loaded.
func PTX(arch string) map[string][]byte {
	if arch == "" {
		return nil
	}
	entries, err := fs.ReadDir(files, path.Join("ptx", arch))
	if err != nil {
		return nil
	}
	modules := map[string][]byte{}
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("ptx", arch, e.Name()))
		if err != nil {
			panic("BUG: " + err.Error())
		}
		modules[strings.TrimSuffix(e.Name(), ".ptx")] = text
	}
	return modules
}

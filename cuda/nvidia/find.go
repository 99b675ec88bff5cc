//go:build linux && (amd64 || arm64)

package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
)

// search says where libraries are looked for.
type search struct {
	first  []string // patterns of folders
	loader bool     // then the system's loader is asked
	then   []string // patterns of folders
}

// usual is the search of a user's program.
func usual() search {
	s := search{loader: true}
	for _, dir := range filepath.SplitList(os.Getenv("KRAIT_CUDA_PATH")) {
		if dir != "" {
			s.first = append(s.first, dir, dir+"/lib64", dir+"/lib", dir+"/*/lib")
		}
	}
	s.then = append(folders("LD_LIBRARY_PATH"), pythons()...) // of which the loader took what it was at the start
	s.then = append(s.then,
		"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/opt/cuda/lib64", "/usr/local/cuda/targets/*/lib",
		"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", // where the loader's cache does not have them
		"/usr/local/nvidia/lib64", // containers of Kubernetes
		"/usr/lib/wsl/lib",        // WSL
		"/run/opengl-driver/lib")  // NixOS
	return s
}

// folders are those that a variable lists.
func folders(env string) (list []string) {
	for _, dir := range filepath.SplitList(os.Getenv(env)) {
		if filepath.IsAbs(dir) {
			list = append(list, dir)
		}
	}
	return list
}

// pythons are the folders in which pip and conda put NVIDIA's libraries: of the environments that
// are active, of the interpreters on PATH, of the user, of the system.
func pythons() (list []string) {
	const wheels = "/nvidia/*/lib"
	for _, dir := range folders("PYTHONPATH") {
		list = append(list, dir+wheels)
	}
	prefixes := folders("VIRTUAL_ENV")
	for _, env := range folders("CONDA_PREFIX") {
		list, prefixes = append(list, env+"/lib"), append(prefixes, env)
	}
	prefixes = append(prefixes, interpreters()...)
	for _, home := range folders("HOME") {
		prefixes = append(prefixes, home+"/.local", home+"/.venv", home+"/miniconda3", home+"/miniforge3", home+"/anaconda3", home+"/.pyenv/versions/*")
	}
	prefixes = append(prefixes, "/usr/local", "/usr", "/opt/*", "/opt/*/.venv", "/opt/*/venv")
	for _, prefix := range prefixes {
		for _, lib := range []string{"/lib", "/lib64"} {
			list = append(list, prefix+lib+"/python3*/site-packages"+wheels, prefix+lib+"/python3*/dist-packages"+wheels)
		}
	}
	return list
}

// interpreters are the prefixes of the Python interpreters on PATH. Links are followed one by one,
// since the interpreter of an environment is itself a link to the system's.
func interpreters() (prefixes []string) {
	for _, dir := range folders("PATH") {
		for _, name := range []string{"python3", "python"} {
			file := filepath.Join(dir, name)
			for range 8 { // links at most
				if _, err := os.Lstat(file); err != nil {
					break
				}
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(file)))
				to, err := os.Readlink(file)
				if err != nil {
					break
				}
				if !filepath.IsAbs(to) {
					to = filepath.Join(filepath.Dir(file), to)
				}
				file = to
			}
		}
	}
	return prefixes
}

// open opens the first of the names that is found; in each place the first name
// is preferred.
func (s search) open(names ...string) (handle uintptr, err error) {
	var broken error
	try := func(file string) bool {
		if strings.Contains(file, "libcublas.so") { // needs a library beside it, where the loader does not look
			purego.Dlopen(strings.Replace(file, "libcublas.so", "libcublasLt.so", 1), purego.RTLD_NOW|purego.RTLD_LOCAL)
		}
		var failed error
		if handle, failed = purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL); failed == nil {
			return true
		}
		if strings.Contains(file, "/") || !strings.HasPrefix(failed.Error(), file+":") {
			broken = failed // it is there, and something else is wrong
		}
		return false
	}
	for _, place := range s.places(names) {
		if try(place) {
			return handle, nil
		}
	}
	if broken != nil {
		return 0, fmt.Errorf("it cannot be loaded: %w", broken)
	}
	return 0, fmt.Errorf("%s was not found%s", strings.Join(names, " or "), s.where())
}

// places lists what to give to the loader, best first.
func (s search) places(names []string) (files []string) {
	in := func(patterns []string) {
		for _, pattern := range patterns {
			for _, name := range names {
				found, _ := filepath.Glob(filepath.Join(pattern, name))
				files = append(files, found...)
			}
		}
	}
	in(s.first)
	if s.loader {
		files = append(files, names...)
	}
	in(s.then)
	return files
}

func (s search) where() string {
	if len(s.first) > 0 {
		return " in KRAIT_CUDA_PATH or anywhere else"
	}
	return ""
}

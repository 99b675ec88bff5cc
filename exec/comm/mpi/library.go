//go:build linux && (amd64 || arm64) && !static

package mpi

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is an MPI library: its functions, and the constants of its header, which MPI
// leaves to each.
type library struct {
	name string // and version, in its words

	world, bytes, returns uintptr // MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN
	any                   int32   // MPI_ANY_SOURCE
	source                int     // where MPI_SOURCE is in a status

	addrs [len(names)]uintptr
}

// symbol is a function, by its place in names.
type symbol int

const (
	initThread symbol = iota
	initialized
	finalize
	abort
	commRank
	commSize
	commSetErrhandler
	isend
	test
	iprobe
	recv
	getCount
	errorString
	getLibraryVersion
)

var names = [...]string{
	initThread:        "MPI_Init_thread",
	initialized:       "MPI_Initialized",
	finalize:          "MPI_Finalize",
	abort:             "MPI_Abort",
	commRank:          "MPI_Comm_rank",
	commSize:          "MPI_Comm_size",
	commSetErrhandler: "MPI_Comm_set_errhandler",
	isend:             "MPI_Isend",
	test:              "MPI_Test",
	iprobe:            "MPI_Iprobe",
	recv:              "MPI_Recv",
	getCount:          "MPI_Get_count",
	errorString:       "MPI_Error_string",
	getLibraryVersion: "MPI_Get_library_version",
}

// Constants of all libraries.
const (
	funneled      = 1
	longestString = 8192 // of Open MPI 256, of MPICH 8192
	statusBytes   = 64   // a status has 20 or 24
)

// Variable names the library to load, by its path or as the loader finds it.
const Variable = "KRAIT_MPI"

// candidates lists names of the launcher's library, which its environment variables tell.
func candidates() []string {
	openMPI, mpich := []string{"libmpi.so.40", "libmpi.so.80"}, []string{"libmpich.so.12", "libmpi.so.12"}
	switch {
	case os.Getenv(Variable) != "":
		return []string{os.Getenv(Variable)}
	case os.Getenv("OMPI_COMM_WORLD_SIZE") != "":
		return openMPI
	case os.Getenv("PMI_SIZE") != "" || os.Getenv("PMI_RANK") != "" || os.Getenv("MPI_LOCALNRANKS") != "":
		return append(mpich, openMPI...)
	}
	return append(openMPI, mpich...)
}

// load loads a library.
func load() (*library, error) {
	var errs []error
	for _, name := range candidates() {
		// Open MPI's plugins look up its symbols globally.
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l := &library{}
		if err := l.bind(handle); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		return l, nil
	}
	return nil, fmt.Errorf("no MPI library can be used (%w); install Open MPI (openmpi-bin) or MPICH (mpich), or name the library in %s", errors.Join(errs...), Variable)
}

// bind finds functions and constants.
func (l *library) bind(handle uintptr) error {
	for i, name := range names {
		addr, err := purego.Dlsym(handle, name)
		if err != nil {
			return fmt.Errorf("it lacks %s", name)
		}
		l.addrs[i] = addr
	}
	if err := l.constants(handle); err != nil {
		return err
	}
	l.name = l.text(func(text *byte, n *int32) {
		l.call(getLibraryVersion, uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(n)))
	})
	l.name, _, _ = strings.Cut(l.name, "\n")
	l.name, _, _ = strings.Cut(l.name, ", package")
	l.name = strings.Join(strings.Fields(l.name), " ")
	return nil
}

// constants sets the constants of Open MPI, whose handles are addresses, or of MPICH and libraries
// with its binary interface, whose handles are numbers.
func (l *library) constants(handle uintptr) error {
	world, err := purego.Dlsym(handle, "ompi_mpi_comm_world")
	if err != nil {
		l.world, l.bytes, l.returns = 0x44000000, 0x4c00010d, 0x54000001
		l.any, l.source = -2, 8
		return nil
	}
	l.world = world
	for _, x := range []struct {
		to   *uintptr
		name string
	}{{&l.bytes, "ompi_mpi_byte"}, {&l.returns, "ompi_mpi_errors_return"}} {
		if *x.to, err = purego.Dlsym(handle, x.name); err != nil {
			return fmt.Errorf("it is Open MPI, and lacks %s", x.name)
		}
	}
	l.any, l.source = -1, 0
	return nil
}

// call calls a function and returns its code. Pointers to Go memory are converted in the
// argument list itself, which keeps what they point to alive.
//
//go:uintptrescapes
func (l *library) call(f symbol, args ...uintptr) int {
	r, _, _ := purego.SyscallN(l.addrs[f], args...)
	return int(int32(r))
}

// text is a string that the library writes.
func (l *library) text(write func(text *byte, n *int32)) string {
	var b [longestString]byte
	var n int32
	write(&b[0], &n)
	return strings.TrimRight(string(b[:min(max(0, int(n)), len(b))]), "\x00\n")
}

// check makes an error of a code.
func (l *library) check(f symbol, code int) error {
	if code == 0 {
		return nil
	}
	said := l.text(func(text *byte, n *int32) {
		l.call(errorString, uintptr(code), uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(n)))
	})
	return fmt.Errorf("%s of %s: %s", names[f], l.name, said)
}

// launched is the number of processes that the launcher started; 0: unknown.
func launched() int {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
	}
	return 0
}

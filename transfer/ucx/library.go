//go:build linux && (amd64 || arm64) && !static

package ucx

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Functions of UCX, by their places in names.
const (
	getVersion = iota
	getVersionString
	configRead
	configModify
	configRelease
	initVersion
	cleanup
	workerCreate
	workerDestroy
	workerGetAddress
	workerReleaseAddress
	workerProgress
	epCreate
	tagSend
	tagReceive
	requestCancel
	requestStatus
	requestFree
	statusString
)

var names = [...]string{
	getVersion:           "ucp_get_version",
	getVersionString:     "ucp_get_version_string",
	configRead:           "ucp_config_read",
	configModify:         "ucp_config_modify",
	configRelease:        "ucp_config_release",
	initVersion:          "ucp_init_version",
	cleanup:              "ucp_cleanup",
	workerCreate:         "ucp_worker_create",
	workerDestroy:        "ucp_worker_destroy",
	workerGetAddress:     "ucp_worker_get_address",
	workerReleaseAddress: "ucp_worker_release_address",
	workerProgress:       "ucp_worker_progress",
	epCreate:             "ucp_ep_create",
	tagSend:              "ucp_tag_send_nbx",
	tagReceive:           "ucp_tag_recv_nbx",
	requestCancel:        "ucp_request_cancel",
	requestStatus:        "ucp_request_check_status",
	requestFree:          "ucp_request_free",
	statusString:         "ucs_status_string",
}

// PathVariable names a folder in which the library is looked for first.
const PathVariable = "KRAIT_UCX_PATH"

// The version of whose interface this is: fields and functions of later ones are not used,
// and those of this one stay where they are.
const major, minor = 1, 10

// Uses of workers.
const (
	receiving = iota
	here      // sending within the host
	away      // sending to others
	uses
)

// settings are what a use needs so that a side that is killed, at any moment, does not end the
// other: UCX aborts where what it holds of the other is no longer as it was. A receiver has
// endpoints that UCX frees when they fail; messages are to name them by what is looked up, and not
// by addresses. A rendezvous is for one host only, where no connection of UCX can fail. Its sender
// does have addresses for names, since UCX cannot destroy it otherwise with one in flight, but
// frees nothing before its end, and has memory whose names do not come again (sysv), as those of
// posix do. To other hosts go messages that have no answer, so that receivers make no endpoints.
var settings = [uses][][2]string{
	receiving: {{"PROTO_INDIRECT_ID", "y"}},
	here:      {{"TLS", "sysv,cma,self"}, {"PROTO_INDIRECT_ID", "n"}},
	away:      {{"PROTO_INDIRECT_ID", "y"}, {"RNDV_THRESH", "inf"}},
}

// library is UCX.
type library struct {
	addrs    [len(names)]uintptr
	contexts [uses]uintptr // one for each use, in the process
	version  string
}

// open opens the library once.
var open = sync.OnceValues(func() (*library, error) {
	l := &library{}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("UCX cannot be used: %w; install it (Debian: libucx0), name its folder in %s, or take the transport tcp", err, PathVariable)
	}
	return l, nil
})

// Version is that of the library, or an error that says why it cannot be used.
func Version() (string, error) {
	l, err := open()
	if err != nil {
		return "", err
	}
	return l.version, nil
}

func (l *library) load() error {
	if err := quiet(); err != nil {
		return err
	}
	handle, err := find("libucp.so.0")
	if err != nil {
		return err
	}
	for i, name := range names {
		if l.addrs[i], err = purego.Dlsym(handle, name); err != nil {
			return fmt.Errorf("its library has no %s", name)
		}
	}
	var v [3]uint32
	l.call(getVersion, uintptr(unsafe.Pointer(&v[0])), uintptr(unsafe.Pointer(&v[1])), uintptr(unsafe.Pointer(&v[2])))
	l.version = fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
	if v[0] != major || v[1] < minor {
		return fmt.Errorf("it is version %s; %d.%d or a later %d is needed", l.version, major, minor, major)
	}
	return l.init()
}

// quiet keeps UCX from what a Go program minds: it would handle signals by which faults
// become panics, patch functions of the C library by
// which memory is mapped, and print errors that are the caller's to tell.
func quiet() error {
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return err
	}
	for _, v := range [][2]string{{"UCX_ERROR_SIGNALS", ""}, {"UCX_HANDLE_ERRORS", "none"}, {"UCX_MEM_MMAP_HOOK_MODE", "none"}, {"UCX_LOG_LEVEL", "fatal"}} {
		if _, given := os.LookupEnv(v[0]); given {
			continue
		}
		name, value := cString(v[0]), cString(v[1])
		purego.SyscallN(setenv, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0])), 1)
	}
	return nil
}

// find opens a library.
func find(name string) (handle uintptr, err error) {
	if dir := os.Getenv(PathVariable); dir != "" {
		name = filepath.Join(dir, name)
	}
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL) // its modules look for its names
}

// init makes the contexts.
func (l *library) init() error {
	for use := range l.contexts {
		if err := l.newContext(use); err != nil {
			return err
		}
	}
	return nil
}

func (l *library) newContext(use int) error {
	var config uintptr
	if err := l.try(configRead, 0, 0, uintptr(unsafe.Pointer(&config))); err != nil {
		return err
	}
	defer l.call(configRelease, config)
	for _, set := range settings[use] {
		name, value := cString(set[0]), cString(set[1])
		if err := l.try(configModify, config, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0]))); err != nil {
			return err
		}
	}
	const featureTag = 1 << 0
	p := struct {
		mask, features, requestSize        uint64
		requestInit, requestCleanup        uintptr
		tagSenderMask                      uint64
		workersShared                      int32
		estimatedEndpoints, estimatedHosts uint64
		name                               uintptr
		rest                               [64]byte
	}{mask: 1<<0 | 1<<5, features: featureTag, workersShared: 1}
	return l.try(initVersion, major, minor, uintptr(unsafe.Pointer(&p)), config, uintptr(unsafe.Pointer(&l.contexts[use])))
}

// call calls a function. Pointers to Go memory must be converted in the argument list itself, which
// keeps the memory in place.
//
//go:uintptrescapes
func (l *library) call(f int, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.addrs[f], args...)
	return r
}

// try calls a function that returns a status.
//
//go:uintptrescapes
func (l *library) try(f int, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.addrs[f], args...)
	return l.failure(names[f], int32(r))
}

// Statuses.
const (
	ok         = 0
	inProgress = 1
	mostErrors = 100 // the highest pointer values are statuses
)

// failure is the error of a status.
func (l *library) failure(call string, status int32) error {
	if status >= 0 {
		return nil
	}
	text := l.call(statusString, uintptr(int(status)))
	return fmt.Errorf("%s: %s", call, goString(text))
}

// request is what a function returned: nothing if it is done, a status, or a request.
func (l *library) request(call string, r uintptr) (uintptr, error) {
	if r == ok {
		return 0, nil
	}
	if status := int(r); status < 0 && status > -mostErrors {
		return 0, l.failure(call, int32(status))
	}
	return r, nil
}

func cString(s string) []byte { return append([]byte(s), 0) }

// goString is a text of C.
func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	start := *(**byte)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(start), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(start, n))
}

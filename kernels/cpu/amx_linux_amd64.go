package cpu

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

const (
	requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
	tileData          = 18     // XFEATURE_XTILEDATA
)

// hasAMX also asks the system, once, to let this process have tiles: it must save 8 KiB
// more when it stops a thread, and may refuse.
var hasAMX = sync.OnceValue(func() bool {
	if !hasAVX512() || !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return false
	}
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
})

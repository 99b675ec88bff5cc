package cuda

import (
	"bytes"
	"strings"
)

// Dependent rewrites PTX for programmatic dependent launch (PDL; driver.LaunchConfig.Dependent) on
// GPUs of compute capability 9.0 or later: a launch may begin as soon as all blocks of the one
// before it have begun. Every thread waits until that has ended: first of all, or where the kernel
// says so (await in krait.h), which until then loads weights only, by .nc and past the first cache.
// Other loads by .nc become plain ones, since their cache may be stale.
//
// Kernels that were registered ([Launch.Registered]) are left as they are.
func Dependent(source []byte) []byte {
	head, bodies, _ := strings.Cut(string(source), begin)
	var to strings.Builder
	to.WriteString(waiting.Replace(head))
	for body := range strings.SplitSeq(bodies, begin) {
		to.WriteString(begin + "\tgriddepcontrol.launch_dependents;\n")
		if !strings.Contains(body, await) {
			to.WriteString(wait)
		}
		to.WriteString(waiting.Replace(body))
	}
	return []byte(to.String())
}

// Independent rewrites PTX for launches that begin when the one before has ended: nothing waits.
func Independent(source []byte) []byte {
	return bytes.ReplaceAll(source, []byte(await), nil)
}

const (
	begin = "\n{\n" // of a body
	await = "\t.pragma \"await\";\n"
	wait  = "\tgriddepcontrol.wait;\n"
	early = "ld.global.nc.L1::no_allocate."
)

var waiting = strings.NewReplacer("\n.target sm_80\n", "\n.target sm_90\n", await, wait, early, early, "ld.global.nc.", "ld.global.")

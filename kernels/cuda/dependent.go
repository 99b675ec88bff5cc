package cuda

import "strings"

// Dependent rewrites PTX for programmatic dependent launch (PDL; driver.LaunchConfig.Dependent) on
// GPUs of compute capability 9.0 or later: a launch may begin as soon as all blocks of the one
// before it have begun. Every thread first waits until that has ended, so only the start of a
// launch is hidden. Loads by .nc become plain ones, since their cache may be stale.
//
// Kernels that were registered ([Launch.Registered]) are left as they are.
func Dependent(source []byte) []byte {
	return []byte(waiting.Replace(string(source)))
}

var waiting = strings.NewReplacer(
	"\n.target sm_80\n", "\n.target sm_90\n",
	"\n{\n", "\n{\n\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n", // each body begins so
	"ld.global.nc.", "ld.global.",
)

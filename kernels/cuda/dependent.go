package cuda

import "strings"

// Dependent makes of a source one whose launches may begin before the launch before in the stream
// has ended (driver.LaunchConfig.Dependent), on GPUs of compute capability 9.0 or later: as soon as
// all blocks of that have begun, since each lets the next launch come at once. Every thread first
// waits until what was launched before has ended, so that the start of a launch is hidden, and
// nothing else changes. Loads are not by .nc, whose cache may have kept what the launch before has
// changed.
//
// [Launch.Registered] kernels are left as they are.
func Dependent(source []byte) []byte {
	return []byte(waiting.Replace(string(source)))
}

var waiting = strings.NewReplacer(
	"\n.target sm_80\n", "\n.target sm_90\n",
	"\n{\n", "\n{\n\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n", // each body begins so
	"ld.global.nc.", "ld.global.",
)

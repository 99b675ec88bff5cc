package cli

import (
	"cmp"
	"fmt"
	"runtime"
)

// replicated refuses replicas where they cannot be, and gives each its part of the cores.
func setReplicas(dp int, f *modelFlags) error {
	const most = 64
	switch {
	case dp < 1 || dp > most:
		return fmt.Errorf("--dp is %d; it must be from 1 to %d", dp, most)
	case dp == 1:
		return nil
	case f.device.name == "cuda":
		return fmt.Errorf("--dp %d: replicas in one process are for the CPU; on GPUs start a process for each, with CUDA_VISIBLE_DEVICES", dp)
	case f.comm.kind != "local":
		return fmt.Errorf("--dp %d: replicas have all their ranks in this process: leave out --comm", dp)
	}
	f.device.only = "--dp has its replicas there"
	f.options.Workers = max(1, cmp.Or(f.options.Workers, runtime.GOMAXPROCS(0))/dp)
	return nil
}

// beside says how many replicas there are.
func beside(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", %d replicas", n)
}

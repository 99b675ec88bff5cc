package cpu

import "golang.org/x/sys/cpu"

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C }

func hasAVX512() bool {
	return hasAVX2() && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ
}

func hasAVX512BF16() bool { return hasAVX512() && cpu.X86.HasAVX512BF16 }

func hasVNNI() bool { return hasAVX512() && cpu.X86.HasAVX512VNNI }

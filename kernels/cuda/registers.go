package cuda

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// registersText has what NVIDIA's assembler says, as docs/ptxas.md: a line for each kernel,
// with its module, its name, and registers of a thread on the GPUs of registerGPUs.
//
//go:embed registers.txt
var registersText string

// registerGPUs are the compute capabilities of registers.txt.
var registerGPUs = [][2]int{{8, 0}, {8, 6}, {8, 9}, {9, 0}}

var registers = sync.OnceValue(func() map[string][4]int {
	all := map[string][4]int{}
	for line := range strings.Lines(registersText) {
		var module, kernel string
		var n [4]int
		if _, err := fmt.Sscan(line, &module, &kernel, &n[0], &n[1], &n[2], &n[3]); err != nil {
			panic("BUG: registers.txt: " + line + err.Error())
		}
		all[module+"."+kernel] = n
	}
	return all
})

// Registers is the number of registers of a kernel's thread on a GPU, by the nearest capability of
// the table below it; 0: the kernel is not in the table.
func Registers(module, kernel string, capability [2]int) int {
	n, at := registers()[module+"."+kernel], 0
	for i, c := range registerGPUs {
		if capability[0] > c[0] || capability[0] == c[0] && capability[1] >= c[1] {
			at = i
		}
	}
	return n[at]
}

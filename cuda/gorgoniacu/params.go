package gorgoniacu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// param is a kernel's parameter in the block of all.
type param struct{ offset, size int }

var (
	entryPattern = regexp.MustCompile(`\.entry\s+([\w$]+)\s*\(([^)]*)\)`)
	paramPattern = regexp.MustCompile(`\.param\s+(?:\.align\s+(\d+)\s+)?\.[a-z]+(\d+)[^\[]*?(?:\[(\d+)\])?\s*$`)
)

// paramsOf reads from PTX how a kernel's parameters lie in their block: the
// driver knows, but gorgonia.org/cu wants them one by one.
func paramsOf(ptx, kernel string) ([]param, error) {
	for _, entry := range entryPattern.FindAllStringSubmatch(ptx, -1) {
		if entry[1] != kernel {
			continue
		}
		var list []param
		end := 0
		for _, text := range strings.Split(entry[2], ",") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			m := paramPattern.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("kernel %s: the parameter %q is not understood", kernel, strings.TrimSpace(text))
			}
			bits, _ := strconv.Atoi(m[2])
			size, align := bits/8, bits/8
			if m[3] != "" {
				count, _ := strconv.Atoi(m[3])
				size *= count
			}
			if m[1] != "" {
				align, _ = strconv.Atoi(m[1])
			}
			end = (end + align - 1) / align * align
			list = append(list, param{offset: end, size: size})
			end += size
		}
		for _, p := range list[:max(0, len(list)-1)] {
			if p.size > 8 {
				return nil, fmt.Errorf("kernel %s has a parameter of %d bytes that is not its last", kernel, p.size)
			}
		}
		return list, nil
	}
	return nil, nil
}

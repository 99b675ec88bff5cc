package memory

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// Limit is the memory in bytes that this process may take: that of the machine, or the limit of its
// control groups, such as a container's, if that is less; 0: unknown.
func Limit() int64 {
	all := Total()
	if n := groupLimit("/sys/fs/cgroup", "/proc/self/cgroup"); n > 0 && (all == 0 || n < all) {
		return n
	}
	return all
}

// groupLimit is the least limit of the control groups of a process, which a file lists, and those
// above them; 0: none. Groups are those of version 2, or of version 1's controller memory
// (cgroups(7)).
func groupLimit(root, list string) (least int64) {
	text, err := os.ReadFile(list)
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		parts := strings.SplitN(line, ":", 3) // number, controllers, group
		if len(parts) < 3 {
			continue
		}
		folder, file := root, "memory.max"
		switch {
		case parts[0] == "0" && parts[1] == "":
		case parts[1] == "memory":
			folder, file = path.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if n := limitIn(path.Join(folder, group, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if group == "/" { // in a container its own group is here, whatever the list says
				break
			}
		}
	}
	return least
}

// limitIn reads a limit; 0: none, or no file.
func limitIn(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // or else it is max
	if err != nil {
		return 0
	}
	return n
}

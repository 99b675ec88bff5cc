package ptx

import (
	"fmt"
	"math/bits"
	"testing"
)

// perLane runs an instruction in one warp.
func perLane(t *testing.T, o operation, x func(l int) uint64) []uint64 {
	t.Helper()
	operands := make([][3]uint64, 32)
	for l := range operands {
		operands[l][0] = x(l)
	}
	return o.run(t, operands)
}

// TestShuffle: each mode with segments, and whether the source was in bounds.
func TestShuffle(t *testing.T) {
	value := func(l int) uint64 { return uint64(100 + l*l) }
	for _, width := range []int{32, 16, 8} {
		for n := range 8 {
			for _, mode := range []string{"up", "down", "bfly", "idx"} {
				clamp := (32-width)<<8 | 31
				if mode == "up" {
					clamp &^= 31
				}
				text := fmt.Sprintf("{ .reg .pred %%p; shfl.sync.%s.b32 %%z|%%p, %%x, %d, %d, -1; @!%%p add.u32 %%z, %%z, 10000; }", mode, n, clamp)
				for l, got := range perLane(t, operation{text, 32, 32, 0, 0}, value) {
					first := l / width * width
					from := map[string]int{"up": l - n, "down": l + n, "bfly": l ^ n, "idx": first + n}[mode]
					want := value(from)
					if from < first || from >= first+width {
						want = value(l) + 10000
					}
					if got != want {
						t.Errorf("%s by %d in %d: lane %d gets %d, want %d", mode, n, width, l, got, want)
					}
				}
			}
		}
	}
}

func TestVoteModes(t *testing.T) {
	for name, value := range map[string]func(l int) uint64{
		"none": func(int) uint64 { return 0 }, "all": func(int) uint64 { return 1 }, "some": func(l int) uint64 { return uint64(l % 2) },
	} {
		for mode, want := range map[string]uint64{"all": bit(name == "all"), "any": bit(name != "none"), "uni": bit(name != "some")} {
			for l, got := range perLane(t, operation{"vote.sync." + mode + ".pred %z, %x, -1;", 1, 1, 0, 0}, value) {
				if got != want {
					t.Errorf("vote.%s of %s: lane %d gets %d", mode, name, l, got)
				}
			}
		}
	}
	for l, got := range perLane(t, operation{"vote.sync.ballot.b32 %z, !%x, -1;", 32, 1, 0, 0}, func(l int) uint64 { return uint64(l % 2) }) {
		if got != 0x55555555 {
			t.Errorf("vote.ballot: lane %d gets %#x", l, got)
		}
	}
}

func TestMatch(t *testing.T) {
	value := func(l int) uint64 { return uint64(l%3) << 40 }
	for l, got := range perLane(t, operation{"match.any.sync.b64 %c, %x, -1; mov.b32 %z, %c;", 32, 64, 0, 0}, value) {
		want := uint64(0)
		for j := range 32 {
			want |= bit(value(j) == value(l)) << j
		}
		if got != want {
			t.Errorf("match.any: lane %d gets %#x, want %#x", l, got, want)
		}
	}
	for _, same := range []bool{false, true} {
		o := operation{"{ .reg .pred %p; match.all.sync.b32 %z|%p, %x, -1; @%p add.u32 %z, %z, 2; }", 32, 32, 0, 0}
		for l, got := range perLane(t, o, func(l int) uint64 { return uint64(l) * (1 - bit(same)) }) {
			if want := bit(same); got != want { // all ones and two more are one
				t.Errorf("match.all, same %v: lane %d gets %#x", same, l, got)
			}
		}
	}
}

func TestRedux(t *testing.T) {
	value := func(l int) uint64 { return uint64(l*0x9e3779b1) & mask(32) }
	var sum, and, or, xor, smallest, largest uint64 = 0, mask(32), 0, 0, value(0), value(0)
	for l := range 32 {
		v := value(l)
		sum, and, or, xor = (sum+v)&mask(32), and&v, or|v, xor^v
		largest = max(largest, v)
		if sext(v, 32) < sext(smallest, 32) {
			smallest = v
		}
	}
	for form, want := range map[string]uint64{"add.u32": sum, "add.s32": sum, "and.b32": and, "or.b32": or, "xor.b32": xor, "min.s32": smallest, "max.u32": largest} {
		for l, got := range perLane(t, operation{"redux.sync." + form + " %z, %x, -1;", 32, 32, 0, 0}, value) {
			if got != want {
				t.Errorf("redux.%s: lane %d gets %#x, want %#x", form, l, got, want)
			}
		}
	}
}

func TestElectAndActive(t *testing.T) {
	o := operation{"{ .reg .pred %p; elect.sync _|%p, -1; selp.u32 %z, 1, 0, %p; }", 32, 0, 0, 0}
	for l, got := range perLane(t, o, func(int) uint64 { return 0 }) {
		if got != bit(l == 0) {
			t.Errorf("elect: lane %d gets %d", l, got)
		}
	}
	o = operation{"mov.u32 %z, 0; { .reg .pred %p; setp.ne.u32 %p, %x, 0; @%p activemask.b32 %z; }", 32, 32, 0, 0}
	for l, got := range perLane(t, o, func(l int) uint64 { return uint64(l & 4) }) {
		if l&4 != 0 && got>>l&1 == 0 || l&4 == 0 && got != 0 {
			t.Errorf("activemask: lane %d gets %#x", l, got)
		}
	}
}

// TestPartialMasks: the halves of a warp shuffle at one instruction, each
// within itself, and in branches, and lanes wait for those that come later.
func TestPartialMasks(t *testing.T) {
	value := func(l int) uint64 { return uint64(l) }
	half := "{ .reg .pred %p; .reg .b32 %m; setp.lt.u32 %p, %x, 16; selp.b32 %m, 0xffff, 0xffff0000, %p; shfl.sync.bfly.b32 %z, %x, 8, 31, %m; }"
	for l, got := range perLane(t, operation{half, 32, 32, 0, 0}, value) {
		if got != uint64(l^8) {
			t.Errorf("halves: lane %d gets %d", l, got)
		}
	}
	branches := `{ .reg .pred %p; and.b32 %c, %x, 1; setp.eq.u32 %p, %c, 0; @%p bra EVEN;
shfl.sync.idx.b32 %z, %x, 5, 31, 0xaaaaaaaa;
bra.uni DONE;
EVEN: shfl.sync.idx.b32 %z, %x, 6, 31, 0x55555555;
DONE: }`
	for l, got := range perLane(t, operation{branches, 32, 32, 0, 0}, value) {
		if want := uint64(6 - l%2); got != want {
			t.Errorf("branches: lane %d gets %d, want %d", l, got, want)
		}
	}
	// Odd lanes come to the shuffle by way of a block behind it.
	late := `{ .reg .pred %p; and.b32 %c, %x, 1; setp.eq.u32 %p, %c, 1; @%p bra LATE;
MEET: shfl.sync.bfly.b32 %z, %x, 1, 31, -1;
bra.uni DONE;
LATE: add.u32 %x, %x, 100;
bra.uni MEET;
DONE: }`
	for l, got := range perLane(t, operation{late, 32, 32, 0, 0}, value) {
		want := uint64(l ^ 1)
		if l%2 == 0 {
			want += 100
		}
		if got != want {
			t.Errorf("late: lane %d gets %d, want %d", l, got, want)
		}
	}
	// Lanes that have exited are not waited for.
	exits := `{ .reg .pred %p; setp.ge.u32 %p, %x, 20; mov.u32 %z, 7; @%p bra DONE; vote.sync.ballot.b32 %z, 1, 0xfffff; DONE: }`
	for l, got := range perLane(t, operation{exits, 32, 32, 0, 0}, value) {
		if l < 20 && bits.OnesCount64(got) != 20 || l >= 20 && got != 7 {
			t.Errorf("exits: lane %d gets %#x", l, got)
		}
	}
}

package kernels

import "testing"

// TestRegister: an operation has one kernel in a set.
func TestRegister(t *testing.T) {
	set := Register(Set{}, Set{"add": {}})
	if Register(set, Set{"mul": {}}); len(set) != 2 {
		t.Errorf("%d kernels, want 2", len(set))
	}
	defer func() {
		if r := recover(); r != "BUG: two kernels are registered for add" {
			t.Errorf("a second kernel for add: %v", r)
		}
	}()
	Register(set, Set{"silu": {}, "add": {}})
}

package budget_test

import (
	"fmt"
	"testing"

	"github.com/krait-ml/krait/serving/internal/budget"
)

// TestShares: senders that take all that they can leave something for the next, and have equal
// shares.
func TestShares(t *testing.T) {
	for senders := 1; senders <= 5; senders++ {
		b := budget.New(1200)
		var held [5]int64
		for took := true; took; {
			took = false
			for i := range senders {
				if b.Take(fmt.Sprint(i), 1) {
					held[i]++
					took = true
				}
			}
		}
		want := int64(1200 / (senders + 1))
		for i := range senders {
			if held[i] < want-1 || held[i] > want+1 {
				t.Errorf("of %d senders that take all they can, number %d holds %d bytes, want %d", senders, i, held[i], want)
			}
		}
		if !b.Take("next", want/4) {
			t.Errorf("%d senders leave nothing for the next", senders)
		}
	}
}

// TestBack: bytes that were given back can be taken again.
func TestBack(t *testing.T) {
	b := budget.New(100)
	for range 3 {
		if !b.Take("a", 50) || b.Take("a", 1) || b.Take("b", 26) || !b.Take("b", 25) {
			t.Fatalf("%d bytes are held", b.Held())
		}
		b.Add("b", -25)
		b.Add("a", 70) // an answer that is larger than its request
		if b.Take("b", 1) {
			t.Error("what is held beyond the budget is forgotten")
		}
		b.Add("a", -120)
		if b.Held() != 0 {
			t.Fatalf("%d bytes are still held", b.Held())
		}
	}
}

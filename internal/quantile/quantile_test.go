package quantile

import "testing"

func TestOf(t *testing.T) {
	list := []int{5, 1, 4, 2, 3}
	for _, c := range []struct {
		list []int
		q    float64
		want int
	}{{list, 0, 1}, {list, .25, 2}, {list, .3, 2}, {list, .5, 3}, {list, .95, 4}, {list, 1, 5}, {list[:4], .5, 2}, {list[:1], .25, 5}} {
		if got := Of(c.list, c.q); got != c.want {
			t.Errorf("%v at %g: %d, not %d", c.list, c.q, got, c.want)
		}
	}
	if list[0] != 5 || Median(list) != 3 {
		t.Errorf("%v, median %d", list, Median(list))
	}
}

package balance

import "testing"

// TestChoice: what is hit is no work, answers are, one that comes last is left to the end, and
// equals are told apart by their requests, and by their turns.
func TestChoice(t *testing.T) {
	n := Need{Blocks: []uint64{1, 2}, Bytes: 2*BlockBytes + 5, Tokens: 3}
	var idle, hit, busy Load
	hit.Seen.Add([]uint64{1})
	busy.Running = 1
	for i, c := range []struct {
		loads []*Load
		last  int
		want  int
	}{
		{[]*Load{&idle, &hit}, -1, 1},
		{[]*Load{&hit, &idle}, 0, 1},
		{[]*Load{&hit}, 0, 0},
		{[]*Load{&busy, &idle}, -1, 1},
		{[]*Load{&idle, {}}, -1, 0},
		{[]*Load{{Work: BlockBytes + 1}, &hit}, -1, 1},
		{[]*Load{&idle, {Work: BlockBytes + 1, Seen: hit.Seen}}, -1, 0},
		{[]*Load{{turn: 2}, {turn: 1}, {turn: 3}}, -1, 1},
		{[]*Load{{turn: 2}, {turn: 1, Running: 1}}, -1, 0},
	} {
		var x Choice[*Load]
		for at, l := range c.loads {
			x.Offer(l, l, n, at == c.last)
		}
		if x.Best != c.loads[c.want] {
			t.Errorf("case %d: not %d", i, c.want)
		}
	}
	work := hit.Add(n, 1)
	if hit.Work != BlockBytes+5+3*AnswerBytes || hit.Running != 1 || hit.Of(n) != 5+3*AnswerBytes {
		t.Errorf("%+v", hit)
	}
	for range 2 {
		if hit.Prefilled(&work); hit.Work != 3*AnswerBytes || hit.Running != 1 {
			t.Errorf("%+v", hit)
		}
	}
	if hit.Remove(work); hit.Work != 0 || hit.Running != 0 {
		t.Errorf("%+v", hit)
	}
	hit.Remove(hit.Add(n, 2))
	if hit.Work != 0 || hit.Running != 0 {
		t.Errorf("%+v", hit)
	}
}

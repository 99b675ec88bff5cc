package prefix

import "slices"

// published chooses α once, as Pan et al. 2025 (Marconi) do. It is 0 until the first eviction.
// Then the tree before that request is kept, with this and later requests, 5 times as many as came
// before, at least one. They are replayed with each of [Alphas]; the most hit tokens win, the first
// of equals.
type published struct {
	*Tree
	seen   int       // requests before the first that evicts
	start  *Tree     // the tree before it; nil before that, and after the choice
	record []Request // since start
	chosen bool
}

// recordFactor is the number of recorded requests per request before the first eviction.
const recordFactor = 5

// Alpha returns α; ok is false if it was not chosen yet.
func (p *published) Alpha() (alpha float64, ok bool) { return p.rule.alpha, p.chosen }

// Serve serves a request.
func (p *published) Serve(r Request) int {
	hit, marks := p.Lookup(r.Input(), r.At)
	if !p.chosen && p.start == nil && p.bytes+p.growth(r.Tokens, marks) > p.capacity {
		p.start = p.Clone()
	}
	p.Admit(r.Tokens, marks, r.At)
	switch {
	case p.chosen:
	case p.start == nil:
		p.seen++
	default:
		if p.record = append(p.record, r); len(p.record) >= recordFactor*p.seen {
			p.choose()
		}
	}
	return hit
}

// choose replays the record.
func (p *published) choose() {
	hits := make([]int, len(Alphas))
	for i, alpha := range Alphas {
		from := p.start.Clone()
		from.rule.alpha = alpha
		for _, r := range p.record {
			hits[i] += from.Serve(r)
		}
	}
	p.rule.alpha, p.chosen = Alphas[slices.Index(hits, slices.Max(hits))], true
	p.start, p.record = nil, nil
}

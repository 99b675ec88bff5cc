package cpu

const (
	fewUnits   = 64 // that are too few, where tokens can be cut
	manyTokens = 48 // in a part of the tokens, at least
)

// grid is what a range of units covers: for each of some parts of the tokens, all of the
// columns before the next part's.
type grid struct {
	columns, parts, tokens int
}

func gridOf(columns, tokens int) grid {
	return grid{columns, max(1, min(fewUnits/max(1, columns), tokens/manyTokens)), tokens}
}

func (g grid) units() int { return g.columns * g.parts }

// each calls f with ranges of columns and tokens that are units lo to hi.
func (g grid) each(lo, hi int, f func(from, to, first, last int)) {
	for lo < hi {
		part := lo / g.columns
		end := min(hi, (part+1)*g.columns)
		f(lo-part*g.columns, end-part*g.columns, part*g.tokens/g.parts, (part+1)*g.tokens/g.parts)
		lo = end
	}
}

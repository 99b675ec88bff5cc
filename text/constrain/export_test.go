package constrain

// Takes reports whether a text is one of the grammar.
func (g *Grammar) Takes(text []byte) bool {
	m := g.Match(&Vocabulary{}, nil)
	for _, b := range text {
		m.move()
		if m.at = m.m.step(m.at, b); m.at == dead {
			return false
		}
	}
	return m.m.sets[m.at].final
}

// States is the size of the grammar.
func (g *Grammar) States() int { return len(g.states) }

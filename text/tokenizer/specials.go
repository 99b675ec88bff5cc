package tokenizer

import "slices"

// Specials are the texts of the special tokens, sorted: in a text that is encoded they become
// these tokens, wherever they stand.
func (p *Pipeline) Specials() []string {
	var list []string
	for id := range p.special {
		if piece, ok := p.pieces[id]; ok && piece != "" {
			list = append(list, piece)
		}
	}
	slices.Sort(list)
	return list
}

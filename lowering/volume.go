package lowering

import "fmt"

// Volume is what moves between two ranks for a sequence, and what would.
type Volume struct {
	From, To int
	Reads    int   // of stretches and rows of stretches
	Bytes    int64 // that they have
	// Whole is what all of the sender's pages with rows of the sequence that are not there, and all
	// of its states, have: what moves where lists name pages and slots, and not what is in them.
	Whole int64
}

// Volumes lists what moves between any two ranks that have something to move, and what each
// receiver reads.
func (t *Transfer) Volumes(tokens, have int) (list []Volume, reads [][]Read, err error) {
	first, last := have/t.From.PageTokens, (tokens+t.From.PageTokens-1)/t.From.PageTokens
	for rank := range t.To.States.Ranks {
		mine, err := t.Reads(rank, tokens, have)
		if err != nil {
			return nil, nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		reads = append(reads, mine)
		of := make([]Volume, t.From.States.Ranks)
		states, pages := make([]bool, len(of)), make([]bool, len(of))
		for _, r := range mine {
			v := &of[r.From]
			v.Reads++
			v.Bytes += r.Bytes * int64(r.Count)
			if r.Source.Region == 0 {
				states[r.From] = true
			} else {
				pages[r.From] = true
			}
		}
		for from, v := range of {
			if v.From, v.To = from, rank; v.Reads == 0 {
				continue
			}
			if states[from] {
				_, run := t.From.States.States(from)
				v.Whole += run
			}
			if pages[from] {
				_, page := t.From.States.Page(from, t.From.PageTokens)
				v.Whole += page * int64(last-first)
			}
			list = append(list, v)
		}
	}
	return list, reads, nil
}

package bench

import (
	"fmt"
	"io"
)

// reportTurns writes the pairs: with llama.cpp, and with other peers.
func reportTurns(w io.Writer, list []Pair) {
	var plain []Pair
	var rows [][]string
	for i := range list {
		p := &list[i]
		if p.By == "" {
			plain = append(plain, *p)
			continue
		}
		rows = append(rows, []string{p.Model, p.Work, p.By, p.Peer.String(), p.Math, p.Krait.String(), ratio(p.Ratio, 1)})
	}
	if len(plain) > 0 {
		fmt.Fprint(w, "\n## In turns with a peer\n\nMedians, with the range in brackets; the roofline is the same for both.\n\n")
		ReportPairs(w, plain)
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## In turns with others\n\nTokens per second: medians over rounds, with the range in brackets. The ratio is the median of the rounds' ratios: above 1, Krait is faster.\n\n")
		table(w, 3, "model|work|against|theirs|math|Krait|Krait / theirs", rows)
		noteOnce(w, list)
	}
}

// noteOnce writes why Krait could not be measured. Notes of others are with their results.
func noteOnce(w io.Writer, list []Pair) {
	said := map[string]bool{}
	for i := range list {
		p := &list[i]
		text := fmt.Sprintf("%s, %s, Krait, %s: %s", p.Model, p.Work, p.Math, p.Krait.Note)
		if p.By != "" && p.Krait.Note != "" && !said[text] {
			said[text] = true
			fmt.Fprintf(w, "\n%s\n", text)
		}
	}
}

// reportPeers compares the best results of others and of Krait with the same model, batch and
// prompt, where they were not measured in turns.
func reportPeers(w io.Writer, f *File) {
	inTurns := map[[2]string]bool{}
	for i := range f.Pairs {
		inTurns[[2]string{f.Pairs[i].Model, f.Pairs[i].By}] = true
	}
	var rows [][]string
	for i := range f.Results {
		peer := &f.Results[i]
		if peer.By == "" || peer.Note != "" || inTurns[[2]string{peer.Model, peer.By}] {
			continue
		}
		decode, prefill := 0.0, 0.0
		for _, r := range f.Results {
			if r.By == "" && r.Model == peer.Model && r.Batch == peer.Batch && r.Prompt == peer.Prompt && r.Ranks <= 1 {
				decode, prefill = max(decode, r.Decode), max(prefill, r.Prefill)
			}
		}
		rows = append(rows, []string{peer.Model, peer.By, fmt.Sprint(peer.Batch), fmt.Sprint(peer.Prompt), ratio(decode, peer.Decode), ratio(prefill, peer.Prefill)})
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Against others\n\nTokens per second of Krait's fastest way on one rank, divided by theirs: above 1, Krait is faster.\n\n")
		table(w, 2, "model|against|batch|prompt|decode|prompt", rows)
	}
	for i := range f.Results {
		if r := &f.Results[i]; r.Note != "" {
			fmt.Fprintf(w, "\n%s, %s, batch %d: %s\n", r.Model, r.how(), r.Batch, r.Note)
		}
	}
}

package reproduce

import "fmt"

// Pair compares tensor parallelism with replicas: published, simulated, and as the published
// columns imply.
type Pair struct {
	Machine    string `json:"machine"`
	GPUs       int    `json:"gpus"`
	OverOne    string `json:"published_over_one"`
	OverDP     string `json:"published_over_replicas"`
	Simulated  string `json:"simulated_over_replicas"`
	Replicas   string `json:"implied_replicas"`   // throughput of that many replicas, in those of one
	Efficiency string `json:"implied_efficiency"` // share of ideal replicas' throughput
}

// pairs divides the published columns: TP/1x by TP/DP is DP/1x. The paper does not say which gains
// correspond, so the ends are combined in all ways.
func (r *Report) pairs() (list []Pair) {
	for _, m := range machines {
		for _, gpus := range []int{2, 4} {
			over := map[string]span{"1x": empty(), "DP": empty()}
			simulated := empty()
			for _, x := range r.Lines {
				c := x.claim
				if c.Measure != "gain" || c.Machine != m.name || c.GPUs != gpus {
					continue
				}
				s := over[c.Over]
				s.add(x.published.lo)
				s.add(x.published.hi)
				over[c.Over] = s
				if c.Over == "DP" {
					simulated.add(x.simulated.lo)
					simulated.add(x.simulated.hi)
				}
			}
			one, dp := over["1x"], over["DP"]
			implied := span{(100 + one.lo) / (100 + dp.hi), (100 + one.hi) / (100 + dp.lo)}
			list = append(list, Pair{m.name, gpus, rangeText(one, "%"), rangeText(dp, "%"), rangeText(simulated, "%"),
				fmt.Sprintf("%.2f…%.2f", implied.lo, implied.hi), fmt.Sprintf("%.0f…%.0f %%", 100*implied.lo/float64(gpus), 100*implied.hi/float64(gpus))})
		}
	}
	return list
}

// Own is Krait's result on the same hardware, for Mamba on 4 GPUs, 256 sequences of 256 tokens and
// as many of output.
type Own struct {
	Machine    string  `json:"machine"`
	How        string  `json:"how"`
	TTFT       float64 `json:"ttft_seconds"`
	TPOT       float64 `json:"tpot_seconds"`
	Throughput float64 `json:"tokens_per_second"`
	Arena      int64   `json:"activation_bytes"`
}

func (l *lab) own() (list []Own, err error) {
	for _, m := range machines {
		for _, x := range []struct {
			how   string
			setup setup
		}{
			{"as the paper's runs: unfused scan, NCCL, launches one by one", setup{}},
			{"fused scan", setup{fused: true}},
			{"and steps of tokens as a captured graph, any algorithm for sums", setup{fused: true, native: true}},
			{"and overlap", setup{fused: true, native: true, overlap: true}},
			{"and sums in fp16", setup{fused: true, native: true, overlap: true, quantize: "fp16"}},
		} {
			s := x.setup
			s.size, s.machine, s.gpus = "mamba-2.8b", m.profile, 4
			t, err := l.run(s, point{256, 256}, 256)
			if err != nil {
				return nil, err
			}
			arena, err := l.arena(s, point{256, 256}, 256)
			if err != nil {
				return nil, err
			}
			list = append(list, Own{m.name, x.how, t.ttft, t.tpot, t.throughput, arena})
		}
	}
	return list, nil
}

// Order is a decode step without and with the pass overlap.
type Order struct {
	Machine string  `json:"machine"`
	Batch   int     `json:"batch"`
	Before  float64 `json:"before_seconds"`
	After   float64 `json:"after_seconds"`
	// Bytes of activations of a prompt of 256 tokens.
	ArenaBefore int64 `json:"before_bytes"`
	ArenaAfter  int64 `json:"after_bytes"`
}

// order simulates the gain of overlap for Mamba on 4 GPUs.
func (l *lab) order() (list []Order, err error) {
	for _, m := range machines {
		for _, batch := range []int{1, 32, 256} {
			o := Order{Machine: m.name, Batch: batch}
			for _, overlap := range []bool{false, true} {
				s := setup{size: "mamba-2.8b", machine: m.profile, gpus: 4, fused: true, native: true, overlap: overlap}
				t, err := l.run(s, point{256, 256}, batch)
				if err != nil {
					return nil, err
				}
				arena, err := l.arena(s, point{256, 256}, batch)
				if err != nil {
					return nil, err
				}
				if overlap {
					o.After, o.ArenaAfter = t.tpot, arena
				} else {
					o.Before, o.ArenaBefore = t.tpot, arena
				}
			}
			list = append(list, o)
		}
	}
	return list, nil
}

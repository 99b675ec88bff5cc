package main

import (
	"fmt"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

// shardingFlags are the flags of every command that lays a model over ranks.
func shardingFlags(c *cobra.Command, s *krait.Sharding) {
	var names []string
	for _, x := range passes.Strategies {
		names = append(names, x.Name)
	}
	c.PreRunE = func(*cobra.Command, []string) error {
		if c.Flags().Changed("tp") && s.Ranks < 1 {
			return fmt.Errorf("--tp %d: 1 to %d ranks are possible", s.Ranks, passes.MaxRanks)
		}
		return nil
	}
	c.Flags().IntVar(&s.Ranks, "tp", 0, "ranks that share the model, tensor parallel (default 1, or as many as graph text is for)")
	c.Flags().StringVar(&s.Strategy, "strategy", "", "how it lies over the ranks: "+strings.Join(names, ", ")+" (default channel)")
	c.Flags().StringVar(&s.Place, "place", "", "a placement file instead of a strategy")
	c.Flags().StringVar(&s.Quantize, "quantize", "", "what all_reduces travel in: fp16, bf16, or by site x_proj=none,out_proj=fp16:acc32")
	c.Flags().StringVar(&s.Dump, "dump", "", "write the graph after each pass that changes it to this folder")
}

// compile compiles a model's graph, or graph text, up to a stage; NoStage is what runs.
func compile(path string, s krait.Sharding, stop graph.Stage) (*graph.Graph, error) {
	g, err := readGraph(path)
	if err != nil {
		return nil, err
	}
	return compileTo(stop, g, s)
}

func compileTo(stop graph.Stage, g *graph.Graph, s krait.Sharding) (*graph.Graph, error) {
	o, err := s.Options()
	if err != nil {
		return nil, err
	}
	o.Stop = stop
	return passes.Compile(g, o)
}

// payloadsFlag is the flag of every command that runs a model over ranks.
func payloadsFlag(c *cobra.Command, s *krait.Sharding) {
	c.Flags().BoolVar(&s.CheckPayloads, "check-payloads", false, "fail where a payload leaves the range of fp16, and name it (takes memory and time)")
}

package cli

import (
	"github.com/krait-ml/krait/checkpoint/convert"
	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/session/prefix"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completions are the values of flags that shells offer, by the flag's name.
var completions = map[string]func() []string{
	"strategy": func() []string {
		names := []string{passes.Auto}
		for _, s := range passes.Strategies {
			names = append(names, s.Name)
		}
		return names
	},
	"passes": func() []string {
		var names []string
		for _, p := range passes.Table {
			names = append(names, p.Name)
		}
		return names
	},
	"hw":                func() []string { return append(cost.Names(), cost.Local) },
	"scan":              func() []string { return []string{"fused", "unfused"} },
	"comm":              func() []string { return []string{"local", "mpi", "tcp", "nccl"} },
	"like":              synth.Sizes,
	"device":            func() []string { return append([]string{autoName}, devices.Names...) },
	"math":              func() []string { return []string{"f32", "bf16", "int8"} },
	"type":              func() []string { return append([]string{"q8"}, convert.Types()...) },
	"dtype":             func() []string { return []string{"f32", "bf16", "f16"} },
	"format":            func() []string { return []string{"text", "dot", "svg"} },
	"detail":            func() []string { return []string{"model", "block", "op"} },
	"stage":             func() []string { return []string{"model", "unpacked", "partitioned", "fused"} },
	"prefill-transport": func() []string { return []string{"tcp", "ucx"} },
	"policy":            func() []string { return append([]string{"all"}, prefix.Policies...) },
	"payload":           func() []string { return []string{"fp16", "bf16", "scaled16", "int8", "e4m3", "e5m2", "int4", "auto"} },
	"phase":             func() []string { return []string{"prefill", "decode"} },
	"states": func() []string {
		return []string{"conv=bf16", "cache=bf16", "ssm=bf16", "conv=f16", "cache=f16", "conv=e4m3", "cache=e4m3"}
	},
}

// completeFlags registers the completions of all commands below one; flags that
// are folders complete to those.
func completeFlags(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var complete cobra.CompletionFunc
		switch values, ok := completions[f.Name]; {
		case f.Name == "model" && c.Name() == "load": // a server's name of a model
			complete = cobra.NoFileCompletions
		case ok:
			complete = cobra.FixedCompletions(values(), cobra.ShellCompDirectiveNoFileComp)
		case f.Name == "model", f.Name == "dump", f.Name == "prefix-cache-dir":
			complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		default:
			return
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic("BUG: " + err.Error()) // the flag is there
		}
	})
}

package main

import (
	"fmt"

	"github.com/krait-ml/krait"
	"github.com/spf13/cobra"
)

// prefixFlags are the flags of commands whose prompts may share a prefix cache.
type prefixFlags struct {
	cache  bytesOrNone
	policy string
}

func (f *prefixFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.Var(&f.cache, "prefix-cache", "bytes of a cache of what was computed for beginnings of prompts, such as 2GiB; 0: none")
	flags.StringVar(&f.policy, "prefix-policy", "", "what goes first when the prefix cache is full: lru, flop:α, tuned or retuned, as cache-sim names them (default tuned)")
}

// options adds what the flags say. What the machine has no memory for is an error now,
// and not when the cache has grown to it.
func (f *prefixFlags) options(o *krait.Options) error {
	o.PrefixCache, o.PrefixPolicy = int64(f.cache.byteCount), f.policy
	if f.policy != "" && o.PrefixCache == 0 {
		return fmt.Errorf("--prefix-policy %s, and there is no prefix cache; add --prefix-cache with its bytes, such as 2GiB", f.policy)
	}
	if all := memory(); all > 0 && o.PrefixCache > all {
		return fmt.Errorf("--prefix-cache %s is more than this machine's memory, which is %s; give less", &f.cache, inGiB(all))
	}
	return nil
}

// inGiB writes bytes with a digit after the point.
func inGiB(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

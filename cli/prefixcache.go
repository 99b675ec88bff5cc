package cli

import (
	"fmt"

	"github.com/krait-ml/krait/internal/memory"
	"github.com/spf13/cobra"
)

// prefixFlags are the flags of commands whose prompts may share a prefix cache.
type prefixFlags struct {
	cache, host bytesOrNone
	policy, dir string
	codec       string
}

func (f *prefixFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.Var(&f.cache, "prefix-cache", "bytes of a cache of what was computed for beginnings of prompts, such as 2GiB; 0: none")
	flags.Var(&f.host, "prefix-cache-host", "bytes of the host's memory for what the prefix cache evicts, to be brought back; 0: none")
	flags.StringVar(&f.dir, "prefix-cache-dir", "", "folder in which the prefix cache outlives the process; it holds as much as --prefix-cache-host, or else --prefix-cache")
	addStateCodec(c, &f.codec)
	flags.StringVar(&f.policy, "prefix-policy", "", "what goes first when the prefix cache is full: lru, flop:α, tuned or retuned, as cache-sim names them (default tuned)")
}

// addStateCodec adds the flag that says what states are in where they leave the ranks.
func addStateCodec(c *cobra.Command, codec *string) {
	c.Flags().StringVar(codec, "state-codec", "", "what states and caches are in where they leave the ranks (host tier, folder, files, --prefill): int8, e4m3, e5m2, int4 or scaled16, with a size of blocks int8/64, or by kind ssm=int8,cache=e4m3,conv=none; default as they are")
}

// checkCodec refuses a codec for states that go nowhere.
func (f *prefixFlags) checkCodec(elsewhere bool) error {
	if f.codec != "" && f.host.byteCount == 0 && f.dir == "" && !elsewhere {
		return fmt.Errorf("--state-codec %s is for states that leave the ranks, and none do: give --prefix-cache-host or --prefix-cache-dir, or have the prompt read by --prefill", f.codec)
	}
	return nil
}

// options adds what the flags say. What the machine has no memory for is an error now,
// and not when the cache has grown to it.
func (f *prefixFlags) options(m *modelFlags) error {
	o := &m.options
	o.PrefixCache, o.PrefixCacheHost = int64(f.cache.byteCount), int64(f.host.byteCount)
	o.PrefixPolicy, o.PrefixCacheDir, o.StateCodec = f.policy, f.dir, f.codec
	if o.PrefixCache == 0 {
		for _, x := range []struct{ name, value string }{{"policy", f.policy}, {"cache-host", f.host.String()}, {"cache-dir", f.dir}} {
			if x.value != "" && x.value != "0" {
				return fmt.Errorf("--prefix-%s %s, and there is no prefix cache; add --prefix-cache with its bytes, such as 2GiB", x.name, x.value)
			}
		}
	}
	asked := o.PrefixCacheHost
	if m.device.name == "cpu" {
		asked += o.PrefixCache
	}
	if all := memory.Total(); all > 0 && asked > all {
		return fmt.Errorf("prefix caches of %s are more than this machine's memory, which is %s; give less to --prefix-cache or --prefix-cache-host", inGiB(asked), inGiB(all))
	}
	return nil
}

// inGiB writes bytes with a digit after the point.
func inGiB(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

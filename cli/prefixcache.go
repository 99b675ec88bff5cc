package cli

import (
	"fmt"

	"github.com/krait-ml/krait/internal/memory"
	"github.com/spf13/cobra"
)

// prefixFlags are the flags of the prefix cache.
type prefixFlags struct {
	cache, host bytesOrNone
	policy, dir string
	codec       string
}

func (f *prefixFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.Var(&f.cache, "prefix-cache", "size of the prefix cache, such as 2GiB; 0: none")
	flags.Var(&f.host, "prefix-cache-host", "size of the host memory tier for evicted prefixes; 0: none")
	flags.StringVar(&f.dir, "prefix-cache-dir", "", "folder that keeps the prefix cache across restarts")
	addStateCodec(c, &f.codec)
	flags.StringVar(&f.policy, "prefix-policy", "", "eviction: reuse, tuned, lru or flop:α (default reuse)")
	detail(c, "prefix-policy", "krait simulate cache --help describes the policies.")
	detail(c, "prefix-cache-dir", "its size is that of --prefix-cache-host, or else of --prefix-cache.")
	expert(c, "prefix-cache-host", "prefix-cache-dir", "prefix-policy")
}

// addStateCodec adds the codec of states that leave the ranks.
func addStateCodec(c *cobra.Command, codec *string) {
	c.Flags().StringVar(codec, "state-codec", "", "codec of states that leave the ranks: int8, e4m3, e5m2, int4 or scaled16")
	detail(c, "state-codec", `it encodes states in the host tier, the folder and files, and on their way from --prefill. With a
block size as int8/64, it is for all but conv states; or by kind as ssm=int8,cache=e4m3,conv=none (default: no codec).`)
	expert(c, "state-codec")
}

// checkCodec rejects a codec for states that do not leave the ranks.
func (f *prefixFlags) checkCodec(elsewhere bool) error {
	if f.codec != "" && f.host.byteCount == 0 && f.dir == "" && !elsewhere {
		return fmt.Errorf("--state-codec %s has no effect: no state leaves the ranks without --prefix-cache-host, --prefix-cache-dir or --prefill", f.codec)
	}
	return nil
}

// options sets the model's options. A cache larger than the machine's memory is an error at once,
// and not when the cache has grown to it.
func (f *prefixFlags) options(m *modelFlags) error {
	o := &m.options
	o.PrefixCache, o.PrefixCacheHost = int64(f.cache.byteCount), int64(f.host.byteCount)
	o.PrefixPolicy, o.PrefixCacheDir, o.StateCodec = f.policy, f.dir, f.codec
	if o.PrefixCache == 0 {
		for _, x := range []struct{ name, value string }{{"policy", f.policy}, {"cache-host", f.host.String()}, {"cache-dir", f.dir}} {
			if x.value != "" && x.value != "0" {
				return fmt.Errorf("--prefix-%s %s needs a prefix cache; add --prefix-cache with its bytes, such as 2GiB", x.name, x.value)
			}
		}
	}
	asked := o.PrefixCacheHost
	if m.device.name == "cpu" {
		asked += o.PrefixCache
	}
	if all := memory.Total(); all > 0 && asked > all {
		return fmt.Errorf("prefix caches of %s exceed this machine's memory of %s; lower --prefix-cache or --prefix-cache-host", inGiB(asked), inGiB(all))
	}
	return nil
}

// inGiB writes bytes with a digit after the point.
func inGiB(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

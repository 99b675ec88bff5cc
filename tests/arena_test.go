package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/lowering"
)

// large are published sizes, with two layers.
var large = map[string]string{
	"mamba-2.8b": `{"model_type": "mamba", "hidden_size": 2560, "intermediate_size": 5120, "num_hidden_layers": 2, "state_size": 16,
		"time_step_rank": 160, "vocab_size": 50280, "expand": 2, "residual_in_fp32": true, "torch_dtype": "float32"}`,
	"mamba2-2.7b": `{"model_type": "mamba2", "hidden_size": 2560, "num_heads": 80, "head_dim": 64, "n_groups": 1, "num_hidden_layers": 2,
		"state_size": 128, "vocab_size": 50288, "expand": 2, "residual_in_fp32": true, "torch_dtype": "float32"}`,
	"falcon-mamba-7b": `{"model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 2, "state_size": 16,
		"time_step_rank": 256, "vocab_size": 65024, "expand": 16, "mixer_rms_eps": 1e-6, "residual_in_fp32": true, "torch_dtype": "float32"}`,
}

// arenaModels are checkpoints and the large sizes, as graphs.
func arenaModels(t *testing.T, checkpoints ...string) map[string]*graph.Graph {
	t.Helper()
	var dirs []string
	for _, dir := range checkpoints {
		dirs = append(dirs, filepath.Join(dir, "config.json"))
	}
	for name, config := range large {
		path := filepath.Join(t.TempDir(), name, "config.json")
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, path)
	}
	out := map[string]*graph.Graph{}
	for _, path := range dirs {
		_, g, err := checkpoint.Describe(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(filepath.Dir(path))] = g
	}
	return out
}

// footprint is what the fullest rank needs of each region of the arena, per token,
// sequence and row.
type footprint struct {
	ranks int
	bytes map[lowering.Space]int64
	held  map[string]int64 // by value: the most bytes that a rank holds
	ops   string           // that run
}

func footprintOf(t *testing.T, g *graph.Graph, sharding krait.Sharding) *footprint {
	t.Helper()
	g, err := compileFor(g, sharding)
	if err != nil {
		t.Fatal(err)
	}
	schedules, err := lowering.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	f := &footprint{ranks: sharding.Ranks, bytes: map[lowering.Space]int64{}, held: map[string]int64{}}
	for _, s := range schedules {
		for space := lowering.PerToken; space <= lowering.Fixed; space++ {
			f.bytes[space] = max(f.bytes[space], s.Bytes[space])
		}
		for i := range s.Buffers {
			b := &s.Buffers[i]
			f.held[b.Name] = max(f.held[b.Name], b.Bytes)
		}
	}
	for _, st := range schedules[0].Steps {
		if st.Op != nil {
			f.ops += st.Op.Name + " "
		}
	}
	return f
}

// comparable reports whether f's ranks run what those of g run, and hold no more of any value.
func (f *footprint) comparable(g *footprint) bool {
	for name, bytes := range f.held {
		if bytes > g.held[name] {
			return false
		}
	}
	return f.ops == g.ops
}

// TestArenaShrinks: per token, more ranks take no more activations than half as many
// do, or than fewer of which one holds at least as much of every value. (Of 5 ranks
// one may hold more than of 4: parts of two groups of heads, and both groups' keys.)
// A gathered value lies beside its parts: for rows, which are so by every strategy,
// and for tokens where the strategy gathers them, it holds from 2 ranks on.
func TestArenaShrinks(t *testing.T) {
	for name, g := range arenaModels(t, covering.Drawn(t, goldens.Folders(t, ".."))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !goldens.All() {
				checkShrinks(t, g, "channel", []int{1, 2, 3, 4, 8})
				return
			}
			checkShrinks(t, g, "channel", []int{1, 2, 3, 4, 5, 6, 7, 8, 16})
			if large[name] != "" {
				checkShrinks(t, g, "naive", []int{2, 3, 4, 8})
				checkShrinks(t, g, "hoisted", []int{1, 2, 4, 8})
			}
		})
	}
}

func checkShrinks(t *testing.T, g *graph.Graph, strategy string, ranks []int) {
	var known []*footprint
	for _, n := range ranks {
		now := footprintOf(t, g, krait.Sharding{Ranks: n, Strategy: strategy})
		for _, fewer := range known {
			if n != 2*fewer.ranks && !now.comparable(fewer) {
				continue
			}
			for space, bytes := range fewer.bytes {
				if now.bytes[space] > bytes && (fewer.ranks > 1 || space != lowering.PerRow) {
					t.Errorf("%s: %d ranks take %d bytes per %s, and %d take %d", strategy, n, now.bytes[space], space, fewer.ranks, bytes)
				}
			}
		}
		known = append(known, now)
	}
}

// TestArenaBytes: of what a token takes on many ranks most is the residual stream and
// its norm, or the next sum, which every rank holds whole: 8 bytes times the width.
func TestArenaBytes(t *testing.T) {
	all := arenaModels(t)
	for name, want := range map[string]string{
		"mamba-2.8b":      "1:92928 2:41728 4:30720 8:25600 16:23040",
		"mamba2-2.7b":     "1:94848 2:51392 4:35968 8:28224 16:24384",
		"falcon-mamba-7b": "1:148608 2:66688 4:49152 8:40960 16:36864",
	} {
		var got []string
		for _, n := range []int{1, 2, 4, 8, 16} {
			f := footprintOf(t, all[name], krait.Sharding{Ranks: n})
			got = append(got, fmt.Sprintf("%d:%d", n, f.bytes[lowering.PerToken]))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s bytes per token, want %s", name, got, want)
		}
	}
}

// TestArenaOfRows: where ranks have even shares of the residual stream, all rows are multiples of
// shares. A value gathered along tokens has room for a piece, of which some is free in that of all
// tokens: the rest is what lives while a block scans, and in the end what is gathered for the
// wanted rows. The largest of whole sequences may be all tokens, and is planned as what a batch
// says.
func TestArenaOfRows(t *testing.T) {
	all := arenaModels(t)
	for name, want := range map[string]string{
		"mamba-2.8b":      "2:(71936+22016)/2 30848+20480+11008 4:(72192+30464)/4 15488+20480+5888 8:(92160+51200)/8 10240+20480+5120 16:(174080+51200)/16 10240+20480+2560",
		"mamba2-2.7b":     "2:(74048+10560)/2 31936+20480+192 4:(76096+31040)/4 16512+20480+5248 8:(92160+60032)/8 10240+20480+6272 16:(174080+68224)/16 10240+20480+3712",
		"falcon-mamba-7b": "2:(114944+34816)/2 49280+32768+17408 4:(115200+48896)/4 24704+32768+9216 8:(147456+81920)/8 16384+32768+8192 16:(278528+81920)/16 16384+32768+4096",
	} {
		var got []string
		for _, n := range []int{2, 4, 8, 16} {
			f := footprintOf(t, all[name], krait.Sharding{Ranks: n, Strategy: "sequence"})
			b := footprintOf(t, all[name], krait.Sharding{Ranks: n, Strategy: "batch"})
			got = append(got, fmt.Sprintf("%d:(%d+%d)/%d %d+%d+%d", n, f.bytes[lowering.PerTokenShare], f.bytes[lowering.PerPieceShare], n,
				b.bytes[lowering.PerToken], b.bytes[lowering.PerLargest], b.bytes[lowering.PerPiece]))
			if f.bytes[lowering.PerToken] > 0 {
				t.Errorf("%s on %d ranks: %v", name, n, f.bytes)
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %s bytes per token, want %s", name, got, want)
		}
	}
	whole, rows := footprintOf(t, all["mamba-2.8b"], krait.Sharding{Ranks: 4}), footprintOf(t, all["mamba-2.8b"], krait.Sharding{Ranks: 4, Strategy: "sequence"})
	if a, b := whole.bytes[lowering.PerToken], rows.bytes[lowering.PerTokenShare]/4; 10*b > 6*a {
		t.Errorf("%d bytes per token of mamba-2.8b on 4 ranks by channel, %d by sequence", a, b)
	}
}

package synth

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sizes has a config.json for each published size, with its dimensions. What
// does not change how fast a model runs may differ from the published file.
//
//go:embed sizes/*.json
var sizes embed.FS

// like are the published sizes of a family that differ in a few keys only.
var like = map[string]struct {
	file string
	keys map[string]any
}{
	"mamba-130m":      {"mamba", width(768, 24, 48)},
	"mamba-370m":      {"mamba", width(1024, 48, 64)},
	"mamba-790m":      {"mamba", width(1536, 48, 96)},
	"mamba-1.4b":      {"mamba", width(2048, 48, 128)},
	"mamba-2.8b":      {"mamba", width(2560, 64, 160)},
	"mamba2-130m":     {"mamba2", heads(768, 24)},
	"mamba2-370m":     {"mamba2", heads(1024, 48)},
	"mamba2-780m":     {"mamba2", heads(1536, 48)},
	"mamba2-1.3b":     {"mamba2", heads(2048, 48)},
	"mamba2-2.7b":     {"mamba2", heads(2560, 64)},
	"falcon-mamba-7b": {"falcon-mamba-7b", nil},
	"zamba-7b":        {"zamba-7b", nil},
	"zamba2-1.2b":     {"zamba2-1.2b", nil},
	"jamba-52b":       {"jamba-52b", nil},
	"bamba-9b":        {"bamba-9b", nil},
	"falcon-h1-0.5b":  {"falcon-h1-0.5b", nil},
}

func width(hidden, layers, rank int) map[string]any {
	return map[string]any{"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "time_step_rank": rank}
}

func heads(hidden, layers int) map[string]any {
	return map[string]any{"hidden_size": hidden, "num_heads": 2 * hidden / 64, "num_hidden_layers": layers}
}

// Sizes lists the names of the published sizes.
func Sizes() []string { return slices.Sorted(maps.Keys(like)) }

// size reads the config of a published size and changes its keys.
func size(name string) (text []byte, keys map[string]any, err error) {
	s, ok := like[name]
	if !ok {
		return nil, nil, fmt.Errorf("there is no size %q; there are %s", name, strings.Join(Sizes(), ", "))
	}
	text, err = sizes.ReadFile("sizes/" + s.file + ".json")
	return text, s.keys, err
}

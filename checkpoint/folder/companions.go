package folder

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/internal/files"
)

// alongside are the files of a folder that say how its model is used.
var alongside = []string{"*.json", "*.txt", "*.model", "*.jinja", "LICENSE*"}

// not are those that say what its weights are.
var not = []string{"config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json"}

// mostAlongside bounds such a file.
const mostAlongside = 1 << 28

// quantFile is where ModelOpt says how weights are quantized, which those of a copy are not.
const quantFile = "hf_quant_config.json"

// Companions copies the files that are not config and weights.
func Companions(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !IsCompanion(e.Name()) || e.IsDir() || e.Name() == quantFile {
			continue
		}
		data, err := files.Read(filepath.Join(from, e.Name()), mostAlongside)
		if err != nil {
			return err
		}
		if err := files.Write(filepath.Join(to, e.Name()), data); err != nil {
			return err
		}
	}
	return nil
}

func IsCompanion(name string) bool {
	return !slices.Contains(not, name) && slices.ContainsFunc(alongside, func(pattern string) bool {
		ok, _ := filepath.Match(pattern, name) // the patterns are good
		return ok
	})
}

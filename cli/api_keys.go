package cli

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/krait-ml/krait/serving/openai"
	"github.com/spf13/cobra"
)

// keysFlag adds --api-keys.
func keysFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(file, "api-keys", "", "file of API keys; each line is a name and the key's SHA-256")
}

// readKeys reads the file of --api-keys; without a file there are no keys.
func readKeys(path string) (*openai.Keys, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--api-keys: %w", err)
	}
	defer file.Close()
	keys, err := openai.ReadKeys(file)
	if err != nil {
		return nil, fmt.Errorf("--api-keys %s: %w", path, err)
	}
	return keys, nil
}

// reloadKeys reads the keys again and sets them; if the file is wrong the old keys stay.
func reloadKeys(path string, set func(*openai.Keys), log *slog.Logger) {
	if path == "" {
		log.Info("SIGHUP ignored: there is no --api-keys to reload")
		return
	}
	keys, err := readKeys(path)
	if err != nil {
		log.Error("API keys not reloaded; the previous ones stay valid", "error", err)
		return
	}
	set(keys)
	log.Info("API keys reloaded")
}

package cli

import (
	"fmt"
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

// keysReload reads the keys again and sets them.
func keysReload(path string, set func(*openai.Keys)) reloading {
	return reloading{"API keys", path != "", func() error {
		keys, err := readKeys(path)
		if err == nil {
			set(keys)
		}
		return err
	}}
}

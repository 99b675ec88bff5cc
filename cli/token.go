package cli

import (
	"fmt"
	"os"
	"strings"
)

// readToken reads the secret in the file of a flag; no file is no secret.
func readToken(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s %s is empty", flag, file)
	}
	if len(token) > 4096 {
		return "", fmt.Errorf("%s %s has %d bytes; the limit of a token is 4096", flag, file, len(token))
	}
	return token, nil
}

// Package hub finds models by the names that they are published under: it looks for org/name in
// the cache that Hugging Face's programs share, and downloads the files that are missing there.
package hub

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/krait-ml/krait/internal/files"
)

// Hub is a server of models, and the cache that their files are downloaded to.
type Hub struct {
	Cache    string   // the folder with models--org--name
	Offline  bool     // makes no request
	endpoint *url.URL // the server
	token    string   // sent to the endpoint only; "": none
	client   *http.Client
	stall    time.Duration // after which a connection that sends nothing is given up
	backoff  time.Duration // before the second attempt; it doubles with each further one
}

// New returns the hub that the variables of Hugging Face's programs describe: HF_ENDPOINT,
// HF_HUB_CACHE, HF_HOME, HF_TOKEN (or the file token in HF_HOME) and HF_HUB_OFFLINE.
func New(getenv func(string) string) (*Hub, error) {
	home := getenv("HF_HOME")
	if home == "" {
		cache, err := cacheHome(getenv)
		if err != nil {
			return nil, fmt.Errorf("the cache of models has no place: %w; set HF_HOME to a folder", err)
		}
		home = filepath.Join(cache, "huggingface")
	}
	h := &Hub{Cache: cmp.Or(getenv("HF_HUB_CACHE"), filepath.Join(home, "hub")), stall: 30 * time.Second, backoff: time.Second}
	switch v := strings.ToLower(getenv("HF_HUB_OFFLINE")); v {
	case "1", "true", "yes", "on":
		h.Offline = true
	}
	const public = "https://huggingface.co"
	text := strings.TrimRight(cmp.Or(getenv("HF_ENDPOINT"), public), "/")
	var err error
	if h.endpoint, err = url.Parse(text); err != nil || h.endpoint.Host == "" || h.endpoint.Scheme != "https" && h.endpoint.Scheme != "http" {
		return nil, fmt.Errorf("HF_ENDPOINT is %s; it must be a URL such as %s", files.Quote(text), public)
	}
	if h.token = strings.TrimSpace(getenv("HF_TOKEN")); h.token == "" {
		if data, err := files.Read(filepath.Join(home, "token"), 1<<12); err == nil {
			h.token = strings.TrimSpace(string(data))
		}
	}
	h.client = newClient(h.endpoint, h.token)
	return h, nil
}

// cacheHome is the folder that programs keep caches in, on every system as Python's library has it.
func cacheHome(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_CACHE_HOME"); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache"), err
}

// Host returns the name of the endpoint, for messages.
func (h *Hub) Host() string { return h.endpoint.Host }

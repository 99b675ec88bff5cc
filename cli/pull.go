package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/spf13/cobra"
)

func newPull() *cobra.Command {
	var o hub.Options
	var quiet bool
	c := &cobra.Command{
		Use:   "pull [flags] ORG/NAME[@REVISION]",
		Short: "Download a model from Hugging Face",
		Long: `Pull downloads a model into the cache that Hugging Face's programs share, and prints its path.
Commands then take ORG/NAME as DIR; they also pull what they need of a model that is not in the
cache. A REVISION is a branch, a tag or a commit (default: main).

Pull fetches one checkpoint: config.json, the tokenizer's files, and the weights, as safetensors
or else pytorch_model.bin. --gguf selects a GGUF file instead, which is then ORG/NAME/FILE.gguf.
Downloads are checked by size and hash. An interrupted one continues when the command runs again.

HF_TOKEN is the token for gated models (or the file token in HF_HOME), HF_HOME the folder of the
cache (default: ~/.cache/huggingface), HF_HUB_CACHE its folder of models, HF_ENDPOINT the server.
With HF_HUB_OFFLINE=1 no command makes a request. docs/names.md has the rest.`,
		Example: `  krait pull state-spaces/mamba-130m-hf
  krait pull ibm-granite/granite-4.0-h-tiny@main
  krait pull unsloth/granite-4.0-h-tiny-GGUF --gguf Q4_K_M`,
		Args: takes(1, 1, "ORG/NAME, the name of a model on Hugging Face"),
		RunE: func(c *cobra.Command, args []string) error {
			n, ok := hub.Parse(args[0])
			if !ok {
				return fmt.Errorf("%q is not a model name; it must be ORG/NAME, ORG/NAME@REVISION or ORG/NAME/FILE.gguf", args[0])
			}
			h, err := hub.New(os.Getenv)
			if err != nil {
				return err
			}
			got, err := pull(c, h, n, o, quiet)
			if err != nil {
				return err
			}
			if !quiet {
				_, format := familyOf(got.Path)
				if format != "" {
					format = " in " + format
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s at commit %.12s: %s, %s bytes%s, %s downloaded\n", n, got.Commit, count(got.Files, "file"), thousands(got.Bytes), format, thousands(got.Fetched))
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), got.Path)
			return err
		},
	}
	c.Flags().StringVar(&o.GGUF, "gguf", "", "GGUF file to pull: a part of its name, or a pattern with * and ?")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the path only")
	return c
}

// pull downloads a model with progress on standard error.
func pull(c *cobra.Command, h *hub.Hub, n hub.Name, o hub.Options, quiet bool) (*hub.Pulled, error) {
	begun := false
	o.Begin = func(files int, bytes int64) {
		begun = true
		if !quiet {
			fmt.Fprintf(c.ErrOrStderr(), "downloading %s: %s, %.1f MB, from %s\n", n, count(files, "file"), float64(bytes)/1e6, h.Host())
		}
	}
	tell, end := terminal.ByteProgress(c.ErrOrStderr(), "download", quiet)
	o.Tell = tell
	got, err := h.Pull(c.Context(), n, o)
	end()
	if begun && err != nil && c.Context().Err() != nil && !quiet {
		fmt.Fprintln(c.ErrOrStderr(), "krait: the bytes so far are kept; the same command continues")
	}
	return got, err
}

// locate returns where a model is: path itself if it exists or is no name; otherwise the path of
// org/name in the cache, into which the part is pulled if it is missing.
func locate(c *cobra.Command, path string, part hub.Part) (string, error) {
	n, ok := isName(path)
	if !ok {
		return path, nil
	}
	h, err := hub.New(os.Getenv)
	if err != nil {
		return "", err
	}
	found, err := h.Find(n, part)
	switch {
	case !errors.Is(err, hub.ErrMissing):
		return found, err
	case h.Offline:
		return "", fmt.Errorf("%s: there is no such folder, and the model is not in the cache; HF_HUB_OFFLINE is set: unset it to download", path)
	}
	got, err := pull(c, h, n, hub.Options{Part: part}, isQuiet(c))
	if errors.Is(err, hub.ErrUnknown) {
		err = fmt.Errorf("%w (there is no folder %s either)", err, path)
	}
	if err != nil {
		return "", err
	}
	return got.Path, nil
}

// isName returns the name that a path is if nothing local has it.
func isName(path string) (hub.Name, bool) {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return hub.Name{}, false
	}
	return hub.Parse(path)
}

// isCached reports whether a text is the name of a model in the cache.
func isCached(text string) bool {
	n, ok := isName(text)
	h, err := hub.New(os.Getenv)
	if !ok || err != nil {
		return false
	}
	_, err = h.Find(n, hub.Config)
	return !errors.Is(err, hub.ErrMissing)
}

func newModels() *cobra.Command {
	var to output
	c := &cobra.Command{
		Use:   "models [flags]",
		Short: "List the downloaded models",
		Long: `Models lists the models in the cache that Hugging Face's programs share (krait pull): their
names, families, formats of most of the weights, and sizes. "not supported" stands for a family
that Krait does not run, "no weights" for a model whose weights are not in the cache. The cache is
the folder HF_HUB_CACHE, or else hub in HF_HOME (default: ~/.cache/huggingface).`,
		Example: `  krait models
  krait models --json`,
		Args: takes(0, 0, ""),
		RunE: func(c *cobra.Command, args []string) error {
			h, err := hub.New(os.Getenv)
			if err != nil {
				return err
			}
			cached, err := h.List()
			if err != nil {
				return err
			}
			models := []cachedModel{}
			for _, m := range cached {
				family, format := familyOf(m.Path)
				models = append(models, cachedModel{m.Name.String(), family, format, m.Bytes, m.Partial, m.Path})
			}
			if len(models) == 0 && !to.json {
				fmt.Fprintf(c.ErrOrStderr(), "no models in %s; krait pull ORG/NAME downloads one\n", visible(h.Cache))
				return nil
			}
			return to.print(c, models, modelTable(models))
		},
	}
	to.add(c)
	return c
}

// cachedModel is a model in the cache, as JSON has it.
type cachedModel struct {
	Name    string `json:"name"`
	Family  string `json:"family,omitempty"` // empty: no weights, or not supported
	Format  string `json:"format,omitempty"` // of most of the weights' bytes
	Bytes   int64  `json:"bytes"`
	Partial int64  `json:"partial_bytes"` // of interrupted downloads
	Path    string `json:"path,omitempty"`
}

// familyOf returns the family of a model that Krait runs, and the format of most of its weights.
func familyOf(path string) (family, format string) {
	if path == "" {
		return "", ""
	}
	m, g, err := checkpoint.Describe(path)
	if err != nil {
		return "", ""
	}
	return m.Family, g.WeightFormats()[0].DType.String()
}

// modelTable writes models as lines with columns.
func modelTable(models []cachedModel) func(io.Writer) {
	return func(w io.Writer) {
		longest := 0
		for _, m := range models {
			longest = max(longest, len(m.Name))
		}
		for _, m := range models {
			family := cmp.Or(m.Family, "not supported")
			if m.Path == "" {
				family = "no weights"
			}
			fmt.Fprintf(w, "%-*s  %-16s %-7s %9.1f MB", longest, m.Name, family, m.Format, float64(m.Bytes)/1e6)
			if m.Partial > 0 {
				fmt.Fprintf(w, ", and %.1f MB of an interrupted download", float64(m.Partial)/1e6)
			}
			fmt.Fprintln(w)
		}
	}
}

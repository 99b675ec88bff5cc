package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/session/draft"
	"github.com/krait-ml/krait/text/tokenizer"
	"github.com/spf13/cobra"
)

// modelFlags are the flags of every command that opens a model.
type modelFlags struct {
	options krait.Options
	device  deviceFlags
	comm    *commFlags
	quiet   bool
	random  string            // seed of random weights, if the flag is given
	warn    func(text string) // nil: to standard error
	inform  func(text string) // of the device that is chosen; nil: to standard error
}

func (f *modelFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.options.Strict, "strict", false, "fail on unknown config keys and unused tensors")
	c.Flags().BoolVar(&f.options.Reference, "reference", false, "run the plain float64 kernels (slow)")
	c.Flags().IntVar(&f.options.Workers, "threads", 0, "goroutines of CPU kernels, over all ranks (default: all cores)")
	c.Flags().StringVar(&f.random, "random-weights", "", "random weights of this seed; the model may be a FILE.ir or only a config")
	f.device.add(c)
	f.comm = &commFlags{}
	f.comm.add(c)
	shardingFlags(c, &f.options.Sharding)
	runningFlags(c, &f.options.Sharding)
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print the result only")
	expert(c, "strict", "reference", "random-weights")
}

// addSpeculate adds the flag of commands that decode, and its default on CPUs.
func (f *modelFlags) addSpeculate(c *cobra.Command, value string) {
	c.Flags().StringVar(&f.options.Speculate, "speculate", value, "speculative decoding, which changes no text: off, auto, ngram, mtp or draft:DIR")
	detail(c, "speculate", "On GPUs the default is off. docs/speculation.md says when it pays.")
}

// speculate sets the default of the flag on the device that is named now.
func (f *modelFlags) speculate(c *cobra.Command) {
	switch flag := c.Flags().Lookup("speculate"); {
	case flag == nil || flag.Changed:
	case f.device.name == "cpu":
		f.options.Speculate = flag.DefValue
	default:
		f.options.Speculate = draft.Off
	}
}

// open opens dir, or the embedded model if dir is empty, and prints warnings. In a process of
// another rank than 0 it follows rank 0 until the model is closed there.
func (f *modelFlags) open(c *cobra.Command, dir string) (*krait.Model, error) {
	if err := draft.Check(cmp.Or(f.options.Speculate, draft.Off)); err != nil {
		return nil, fmt.Errorf("--speculate is %w", err)
	}
	if err := f.connect(c); err != nil {
		return nil, err
	}
	if f.comm.follows() {
		return nil, f.comm.follow(c.Context(), func() (*krait.Model, error) { return f.load(c, dir) })
	}
	return f.load(c, dir)
}

// connect joins the processes that run the model together.
func (f *modelFlags) connect(c *cobra.Command) (err error) {
	f.options.Processes, err = f.comm.connect(c, f.device.name)
	return err
}

// load is open without the other processes.
func (f *modelFlags) load(c *cobra.Command, dir string) (m *krait.Model, err error) {
	quiet := f.quiet || f.comm.follows()
	f.choose(c, dir, quiet)
	if m, err = f.loadOn(c, dir, quiet); err != nil && f.instead(c, err) {
		m, err = f.loadOn(c, dir, quiet)
	}
	if err != nil {
		return nil, err
	}
	f.comm.opened = true
	if !quiet {
		for _, w := range m.Warnings {
			if f.warn != nil {
				f.warn(w)
				continue
			}
			fmt.Fprintln(c.ErrOrStderr(), "warning:", printable(w))
		}
	}
	return m, nil
}

// loadOn loads a model on the device that is named now.
func (f *modelFlags) loadOn(c *cobra.Command, dir string, quiet bool) (m *krait.Model, err error) {
	f.device.reference = f.options.Reference
	if f.options.Device, err = f.device.open(hardwareName(c)); err != nil {
		return nil, err
	}
	f.speculate(c)
	var end func()
	f.options.Progress, end = terminal.ByteProgress(c.ErrOrStderr(), "weights", quiet)
	defer end()
	m, err = interruptible(c, "", func() (*krait.Model, error) {
		switch {
		case c.Flags().Changed("random-weights"):
			return f.randomly(c, dir)
		case dir == "":
			return krait.Embedded(f.options)
		case filepath.Ext(dir) == ".ir":
			return nil, fmt.Errorf("%s is graph text, which has no weights; run it on random ones with --random-weights SEED", visible(dir))
		}
		return krait.Open(dir, f.options)
	})
	if err != nil {
		return nil, driverError{err}
	}
	return m, nil
}

// randomly makes a model of random weights. Of a folder it takes the tokenizer, too; without one,
// 256 tokens are bytes.
func (f *modelFlags) randomly(c *cobra.Command, path string) (*krait.Model, error) {
	seed, err := strconv.ParseUint(f.random, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("--random-weights is %q; it must be a seed, an integer from 0 to 2^64-1", f.random)
	}
	g, err := makeGraph(c, path)
	if err != nil {
		return nil, err
	}
	if g.Stage != graph.ModelStage {
		return nil, fmt.Errorf("%s is at stage %s; a model is made of a graph at stage %s", visible(path), g.Stage, graph.ModelStage)
	}
	var tokens krait.Tokenizer
	if info, err := os.Stat(path); err == nil && info.IsDir() || filepath.Ext(path) == ".gguf" {
		tokens, err = checkpoint.OpenTokenizer(path, vocabOf(g))
		if err != nil && !errors.Is(err, checkpoint.ErrNoTokenizer) {
			return nil, err
		}
	} else if vocabOf(g) == tokenizer.ByteVocab {
		tokens = tokenizer.Bytes{}
	}
	return krait.New(g, krait.RandomWeights(g, seed), tokens, f.options)
}

// vocabOf returns the size of the vocabulary of a graph of a language model, or 0.
func vocabOf(g *graph.Graph) int {
	for _, o := range g.Outputs {
		if d := o.Value.Type.Dims; o.Name == "logits" && len(d) == 2 && d[1].Sym == 0 {
			return d[1].Len()
		}
	}
	return 0
}

// describe is one line about a model.
func describe(m *krait.Model, device *deviceFlags) string {
	on := ranks(m.Ranks())
	if mesh := m.Engine().Schedules()[0].Mesh; mesh.Ranks() > mesh.Along(graph.TP) {
		on += fmt.Sprintf(" (%s)", mesh)
	}
	text := fmt.Sprintf("%s (%s, %s parameters), %s on %s", visible(m.Name), m.Family(), thousands(m.Parameters()), on, device.about())
	if how := m.Engine().Transport(); how != "" {
		text += "; " + how
	}
	return text
}

// modelFigures describes a model as JSON.
type modelFigures struct {
	Name       string `json:"name"`
	Family     string `json:"family"`
	Parameters int64  `json:"parameters"`
	Ranks      int    `json:"ranks"`
	Device     string `json:"device"`
	Exchanges  string `json:"exchanges,omitempty"` // how the collectives of its ranks travel
}

func figuresOf(m *krait.Model, device string) modelFigures {
	return modelFigures{m.Name, m.Family(), m.Parameters(), m.Ranks(), device, m.Engine().Transport()}
}

// thousands writes 732544 as 732,544.
func thousands(n int64) string { return terminal.Thousands(n) }

// readIDs reads token ids between blanks or commas.
func readIDs(text string) ([]int, error) {
	var ids []int
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\t\r\n[]", r) }) {
		id, err := strconv.Atoi(w)
		if err != nil {
			return nil, fmt.Errorf("%q is not a token id; ids are integers between blanks or commas", w)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

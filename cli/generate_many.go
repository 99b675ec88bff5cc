package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/spf13/cobra"
)

// manyFlags are those of generations of many prompts.
type manyFlags struct {
	file  string
	dp    int
	alone []string // flags for one prompt
}

func (f *manyFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.file, "prompts", "", "file with a prompt per line, in place of PROMPT; - is standard input")
	detail(c, "prompts", "each prompt has a seed of its own: --seed for the first, one more for each further one.")
	c.Flags().IntVar(&f.dp, "dp", 1, "data-parallel replicas that share --prompts and the cores")
}

// check refuses flags that mean nothing for many prompts, or for one.
func (f *manyFlags) check(c *cobra.Command) error {
	if f.file == "" {
		if c.Flags().Changed("dp") {
			return fmt.Errorf("--dp distributes many prompts: give them with --prompts FILE")
		}
		return nil
	}
	for _, name := range append(f.alone, "ids", "logprobs") {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s is for one PROMPT, and --prompts gives many", name)
		}
	}
	return nil
}

// run continues the lines of the file, and prints them in their order.
func (f *manyFlags) run(c *cobra.Command, dir string, m *modelFlags, sampled *samplingFlags, o krait.Generate, to output) (err error) {
	text, err := readText(c, f.file)
	if err != nil {
		return err
	}
	prompts := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if err := setReplicas(f.dp, m); err != nil {
		return err
	}
	m.options.Slots = min(8, (len(prompts)+f.dp-1)/f.dp)
	var replicas []*krait.Model
	for range f.dp {
		one, err := m.open(c, dir)
		if err != nil {
			return err
		}
		defer one.Close()
		replicas = append(replicas, one)
	}
	defaults(c, replicas[0], &o)
	sampled.seed(c, &o)
	if !m.quiet && !to.json {
		fmt.Fprintln(c.ErrOrStderr(), "model  ", describe(replicas[0], &m.device)+beside(f.dp))
		if o.Temperature > 0 {
			fmt.Fprintln(c.ErrOrStderr(), "seed   ", o.Seed)
		}
	}
	list, err := replicas[0].GenerateBatch(c.Context(), prompts, o, replicas[1:]...)
	if err != nil {
		return err
	}
	return f.print(c, replicas[0], m.device.name, prompts, &o, list, to)
}

func (f *manyFlags) print(c *cobra.Command, m *krait.Model, device string, prompts []string, o *krait.Generate, list []*krait.Generation, to output) error {
	type generation struct {
		Prompt string       `json:"prompt"`
		Text   string       `json:"text"`
		IDs    []int        `json:"ids"`
		Reason krait.Reason `json:"reason"`
		TTFT   float64      `json:"ttft_seconds"`
		Total  float64      `json:"total_seconds"`
	}
	var out []generation
	for i, g := range list {
		out = append(out, generation{prompts[i], g.Text, append([]int{}, g.IDs...), g.Reason, g.TTFT.Seconds(), g.Total.Seconds()})
	}
	report := struct {
		Model       modelFigures `json:"model"`
		Replicas    int          `json:"replicas"`
		Seed        *uint64      `json:"seed,omitempty"` // of the first prompt
		Generations []generation `json:"generations"`
	}{figuresOf(m, device), f.dp, seedOf(o), out}
	return to.print(c, report, func(w io.Writer) {
		for i, g := range list {
			fmt.Fprintf(w, "%s%s\n\n", prompts[i], g.Text)
		}
	})
}

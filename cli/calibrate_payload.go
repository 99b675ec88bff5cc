package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/lab/calibration"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newCalibratePayload() *cobra.Command {
	var f modelFlags
	o := krait.Evaluate{}
	from := modelArg{kind: "DIR"}
	var path, file string
	var ids bool
	var limit int
	c := &cobra.Command{
		Use:   "payload --text FILE -o FILE.json --tp N [flags] [DIR]",
		Short: "Measure the accuracy cost of collective payload formats",
		Long: `Payload runs a text through a model on several ranks: with exact payloads, then with each
format at each site and in each direction (partial sums or sums), then with each format at
all sites. It writes the magnitude of the sums, the rounding error of each format, the bytes
that a rank sends, and the increase of bits per token. --payload auto --calibration FILE.json
--budget 0.5% chooses by that file. Evaluate the choice on another text.

With --phase prefill or decode only payloads of that phase are rounded: the first half of each
window is prefilled, and the rest is scored. Without DIR it uses the embedded model.`,
		Example: `  krait calibrate payload --text train.txt --tp 4 -o payload.json
  krait eval --text testdata/val.txt --tp 4 --payload auto --budget 0.5% --calibration payload.json`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case path == "":
				return errors.New("--text FILE is missing: the text file to run")
			case file == "":
				return errors.New("-o FILE.json is missing: the file to write")
			case f.options.Sharding.Payload != "":
				return errors.New("--payload: calibrate payload tries all formats; leave it out")
			}
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			return f.calibratePayload(c, dir, path, file, ids, limit, o)
		},
	}
	f.add(c)
	_ = c.Flags().SetAnnotation("phase", phaseAlone, nil) // there is such a flag
	from.add(c)
	c.Flags().StringVar(&path, "text", "", "text file to run (required); - is standard input")
	c.Flags().StringVarP(&file, "output", "o", "", "file to write (required)")
	c.Flags().BoolVar(&ids, "ids", false, "take --text as token ids")
	c.Flags().IntVar(&o.Window, "window", 256, "tokens per window")
	c.Flags().IntVar(&limit, "limit", 8192, "use only the first tokens of the text; 0: all")
	return c
}

// tokensOf returns the first tokens of a text in the model's vocabulary.
func (f *modelFlags) tokensOf(c *cobra.Command, dir, path string, ids bool, limit int) ([]int, error) {
	m, err := f.open(c, dir)
	if err != nil {
		return nil, err
	}
	r := evalReport{Model: figuresOf(m, f.device.name), Text: path}
	tokens, err := r.read(c, m, ids, limit)
	return tokens, errors.Join(err, m.Close())
}

func (f *modelFlags) calibratePayload(c *cobra.Command, dir, path, out string, ids bool, limit int, o krait.Evaluate) error {
	f.options.Slots = 1
	quiet := f.plain()
	tokens, err := quiet.tokensOf(c, dir, path, ids, limit)
	if err != nil {
		return err
	}
	open := func(quantize string, keep []string) (*krait.Model, error) {
		with := *quiet
		with.options.Sharding.Payload, with.options.Keep = quantize, keep
		return with.open(c, dir)
	}
	tell, done := terminal.Progress(c.ErrOrStderr(), "calibrate payload", "runs", f.quiet)
	found, err := calibration.Run(c.Context(), f.options.Sharding.Phase, open, tokens, o, tell)
	done()
	if err != nil {
		return err
	}
	found.Strategy = f.options.Sharding.Strategy
	data, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Write(out, append(data, '\n')); err != nil {
		return err
	}
	if !f.quiet {
		printCalibration(c.OutOrStdout(), found)
	}
	return nil
}

func printCalibration(w io.Writer, found *calibration.Calibration) {
	fmt.Fprintf(w, "%s, %d ranks: %.4f bits per token over %s, %s bytes per rank and token\n", visible(found.Model), found.Ranks, found.Bits, count(found.Tokens, "token"), thousands(found.Bytes))
	line := func(t *calibration.Trial) {
		if t.Fails != "" {
			fmt.Fprintf(w, "  %-16s fails: %s\n", t.Payload, t.Fails)
			return
		}
		fmt.Fprintf(w, "  %-16s %8s bytes  %+8.4f%% bits, ±%.4f%%\n", t.Payload, thousands(t.Bytes), 100*t.Loss, 100*t.Error)
	}
	for i := range found.Sites {
		s := &found.Sites[i]
		fmt.Fprintf(w, "\n%s", s.Name)
		if s.Largest > 0 {
			fmt.Fprintf(w, ": to %.3g, rms %.3g; rounded once", s.Largest, s.RMS)
			for _, r := range s.Rounded {
				fmt.Fprintf(w, ", %s %.2g", r.Format, r.Error)
			}
		}
		fmt.Fprintln(w)
		for j := range s.Trials {
			line(&s.Trials[j])
		}
	}
	fmt.Fprintln(w, "\nall sites")
	for i := range found.Same {
		line(&found.Same[i])
	}
}

// phases names the phases that payloads are for.
func phases(phase string) string {
	if phase == "" {
		return "both phases"
	}
	return phase + " alone"
}

// payloadFlags are the flags of --payload auto.
type payloadFlags struct{ budget, calibration string }

func (f *payloadFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.budget, "budget", "", "allowed increase of bits per token for --payload auto, such as 0.5%")
	c.Flags().StringVar(&f.calibration, "calibration", "", "file of krait calibrate payload that --payload auto uses")
}

// choose replaces auto by the choice of a calibration, and prints why.
func (f *payloadFlags) choose(c *cobra.Command, s *krait.Sharding) error {
	switch {
	case s.Payload != passes.Auto && f.budget+f.calibration == "":
		return nil
	case s.Payload != passes.Auto:
		return errors.New("--budget and --calibration are for --payload auto")
	case f.calibration == "":
		return errors.New("--payload auto: --calibration FILE.json is missing; krait calibrate payload writes it")
	case f.budget == "":
		return errors.New("--payload auto: --budget is missing: the allowed increase of bits per token, such as 0.5%")
	}
	budget, err := calibration.ParseBudget(f.budget)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	data, err := files.Read(f.calibration, 64<<20)
	if err != nil {
		return err
	}
	found, err := calibration.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", visible(f.calibration), err)
	}
	if found.Ranks != s.Ranks || found.Strategy != s.Strategy {
		return fmt.Errorf("%s was measured on %d ranks with strategy %q, but this run has %d and %q: calibrate with the same flags", visible(f.calibration), found.Ranks, found.Strategy, s.Ranks, s.Strategy)
	}
	if found.Phase != s.Phase {
		return fmt.Errorf("%s was measured for %s, but this run is for %s: calibrate with the same --phase", visible(f.calibration), phases(found.Phase), phases(s.Phase))
	}
	choice := found.Choose(budget)
	s.Payload, s.Check = choice.Payload, found.Check
	w := c.ErrOrStderr()
	fmt.Fprintf(w, "payload auto: %s (%s bytes per rank and token in place of %s; at most %.3f%% more bits, of %.3f%%)\n",
		orNone(choice.Payload), thousands(choice.Bytes), thousands(found.Bytes), 100*choice.Loss, 100*budget)
	for _, why := range choice.Reasons {
		fmt.Fprintln(w, "  "+why)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

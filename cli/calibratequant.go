package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lab/calibration"
	"github.com/krait-ml/krait/passes"
	"github.com/spf13/cobra"
)

func newCalibrateQuant() *cobra.Command {
	var f modelFlags
	o := krait.Evaluate{}
	from := modelArg{kind: "DIR"}
	var path, out string
	var ids bool
	var limit int
	c := &cobra.Command{
		Use:   "calibrate-quant --text FILE -o FILE.json --tp N [flags] [DIR]",
		Short: "Measure what cheaper payloads cost, site by site",
		Long: `Calibrate-quant runs a text through a model on several ranks: without payloads that
are rounded, then with each format at each site and in each direction, the summands or the
sum, and with each format at all sites. It writes how large the sums are, what each
format does to them, how many bytes a rank sends and how many more bits per token the
text takes. --quantize auto --calibration FILE.json --budget 0.5% chooses by that:
on a text of your own, and not on the one by which you judge it. With --phase prefill
or decode the payloads of that phase alone are rounded: the first half of each window
is read as a prompt, and what follows is scored.

Without DIR it uses the embedded model.`,
		Example: `  krait calibrate-quant --text train.txt --tp 4 -o quant.json
  krait eval --text testdata/val.txt --tp 4 --quantize auto --budget 0.5% --calibration quant.json`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case path == "":
				return errors.New("--text FILE is missing: the text to run")
			case out == "":
				return errors.New("-o FILE.json is missing: what to write")
			case f.options.Sharding.Payload != "":
				return errors.New("--quantize: calibration tries all formats itself; leave it out")
			}
			dir, err := from.take(c, args)
			if err != nil {
				return err
			}
			return f.calibrateQuant(c, dir, path, out, ids, limit, o)
		},
	}
	f.add(c)
	_ = c.Flags().SetAnnotation("phase", phaseAlone, nil) // there is such a flag
	from.add(c)
	c.Flags().StringVar(&path, "text", "", "the text to run; - is standard input")
	c.Flags().StringVarP(&out, "output", "o", "", "the file to write")
	c.Flags().BoolVar(&ids, "ids", false, "the file holds token ids")
	c.Flags().IntVar(&o.Window, "window", 256, "tokens per window")
	c.Flags().IntVar(&limit, "limit", 8192, "take only the first tokens of the text; 0: all")
	return c
}

func (f *modelFlags) calibrateQuant(c *cobra.Command, dir, path, out string, ids bool, limit int, o krait.Evaluate) error {
	f.options.Slots = 1
	quiet := f.plain()
	m, err := quiet.open(c, dir)
	if err != nil {
		return err
	}
	r := evalReport{Model: figuresOf(m, f.device.name), Text: path}
	tokens, err := r.read(c, m, ids, limit)
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	open := func(quantize string, keep []string) (*krait.Model, error) {
		with := *quiet
		with.options.Sharding.Payload, with.options.Keep = quantize, keep
		return with.open(c, dir)
	}
	tell, done := progress(c.ErrOrStderr(), "calibrate-quant", "runs", f.quiet)
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
	fmt.Fprintf(w, "%s, %d ranks: %.4f bits per token over %s, %s bytes of a rank for a token\n", visible(found.Model), found.Ranks, found.Bits, count(found.Tokens, "token"), thousands(found.Bytes))
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

// phases says which ones payloads are for.
func phases(phase string) string {
	if phase == "" {
		return "both phases"
	}
	return phase + " alone"
}

// quantFlags are those of --quantize auto.
type quantFlags struct{ budget, calibration string }

func (f *quantFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.budget, "budget", "", "with --quantize auto: how many more bits per token are allowed, 0.5%")
	c.Flags().StringVar(&f.calibration, "calibration", "", "with --quantize auto: what krait calibrate-quant wrote")
}

// choose lets auto be what a calibration says, and prints why.
func (f *quantFlags) choose(c *cobra.Command, s *krait.Sharding) error {
	switch {
	case s.Payload != passes.Auto && f.budget+f.calibration == "":
		return nil
	case s.Payload != passes.Auto:
		return errors.New("--budget and --calibration are for --quantize auto")
	case f.calibration == "":
		return errors.New("--quantize auto: --calibration FILE.json is missing, which krait calibrate-quant writes")
	case f.budget == "":
		return errors.New("--quantize auto: --budget is missing: how many more bits per token are allowed, 0.5%")
	}
	budget, err := calibration.ParseBudget(f.budget)
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	data, err := files.Read(f.calibration, 64<<20)
	if err != nil {
		return err
	}
	var found calibration.Calibration
	if err := json.Unmarshal(data, &found); err != nil {
		return fmt.Errorf("%s: %w; krait calibrate-quant writes such files", visible(f.calibration), err)
	}
	if found.Ranks != s.Ranks || found.Strategy != s.Strategy {
		return fmt.Errorf("%s is of %d ranks and strategy %q, and this is of %d and %q: calibrate as you run", visible(f.calibration), found.Ranks, found.Strategy, s.Ranks, s.Strategy)
	}
	if found.Phase != s.Phase {
		return fmt.Errorf("%s is of %s, and this is for %s: calibrate with the same --phase", visible(f.calibration), phases(found.Phase), phases(s.Phase))
	}
	choice := found.Choose(budget)
	s.Payload, s.Check = choice.Payload, found.Check
	w := c.ErrOrStderr()
	fmt.Fprintf(w, "quantize auto: %s (%s bytes of a rank for a token in place of %s; at most %.3f%% more bits, of %.3f%%)\n",
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

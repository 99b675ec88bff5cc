package exec

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/kernels"
)

// LogitsOutput is the output from which the host chooses tokens.
const LogitsOutput = "logits"

// HiddenOutput is the output that has hidden states of tokens, for drafters that read them.
const HiddenOutput = graph.HiddenOutput

// Choice configures how a token is chosen from a row of logits.
type Choice struct {
	kernels.Choice
	// Seen has a bit for each token that the penalty applies to, as in [graph.SeenType]; nil: none.
	Seen []int32
	// Pick chooses on the host where operation choose does not suffice. It gets the row of logits,
	// which it must not change nor retain, and the device's token, and returns the token, or one of
	// choose's negative error numbers. The logits are copied to the host then. Picks of different
	// rows run concurrently. nil: the device's token counts.
	Pick func(logits []float32, chosen int32) int32
}

// picks reports whether the host chooses a row of the batch.
func (b *Batch) picks() bool {
	return slices.ContainsFunc(b.Choices, func(c Choice) bool { return c.Pick != nil })
}

// checkChoices checks the number of choices, and that the graph chooses.
func (p *phase) checkChoices(b *Batch, rows int64) error {
	switch {
	case b.Choices == nil:
		return nil
	case p.outputIndex(graph.ChosenOutput) < 0:
		return fmt.Errorf("the graph has no output %s; where it is built, b.Output(%[1]q, b.Choose(…)) makes one of its logits", graph.ChosenOutput)
	case b.picks() && p.outputIndex(LogitsOutput) < 0:
		return fmt.Errorf("the graph has no output %s, from which the host chooses tokens; where it is built, b.Output(%[1]q, …) makes one", LogitsOutput)
	case int64(len(b.Choices)) != rows:
		return fmt.Errorf("%d choices for %d rows", len(b.Choices), rows)
	}
	return nil
}

// fillChoice fills the input of choices.
func fillChoice(b *Batch, in *Input, _ int) error {
	if b.Choices == nil {
		return fillGiven(b, in, 0)
	}
	n := graph.RowElems(in.Type.Dims)
	t := kernels.Tensor{DType: graph.F32, Cols: n, Stride: n, F32: operand.View[float32](in.Data)}
	for i := range b.Choices {
		b.Choices[i].Put(t.Row(i))
		if _, ok := kernels.ChoiceOf(&t, i, 1<<24); !ok {
			_, err := kernels.Token(graph.BadChoice)
			return fmt.Errorf("choice %d: %w", i, err)
		}
	}
	return nil
}

// fillSeen fills the input of tokens that the penalties apply to.
func fillSeen(b *Batch, in *Input, _ int) error {
	if b.Choices == nil {
		return fillGiven(b, in, 0)
	}
	seen, words := operand.View[int32](in.Data), graph.RowElems(in.Type.Dims)
	for i := range b.Choices {
		row, from := seen[i*words:(i+1)*words], b.Choices[i].Seen
		switch {
		case from == nil:
			clear(row)
		case len(from) != words:
			return fmt.Errorf("choice %d has %d words in Seen; a bit per token takes %d", i, len(from), words)
		default:
			copy(row, from)
		}
	}
	return nil
}

// ChoiceError is the error of a step that could not choose a token from some rows, and succeeded
// otherwise: it has results, and only sequences of these rows must be freed or reset.
type ChoiceError struct {
	Rows []int // of [Results].Tokens, which is negative there
	Err  error
}

// AsChoiceError unwraps a ChoiceError; nil: the error is another, or none.
func AsChoiceError(err error) *ChoiceError {
	if err == nil {
		return nil
	}
	var u *ChoiceError
	errors.As(err, &u)
	return u
}

func (u *ChoiceError) Error() string { return u.Err.Error() }
func (u *ChoiceError) Unwrap() error { return u.Err }

// any reports whether the error is of one of the n rows from first on. A nil error is of none.
func (u *ChoiceError) any(first, n int) bool {
	return u != nil && slices.ContainsFunc(u.Rows, func(row int) bool { return first <= row && row < first+n })
}

// pick lets the host choose in rows that have a Pick. Rows in which the device found no token stay
// without one.
func (r *Results) pick(choices []Choice) error {
	logits, err := r.Output(LogitsOutput)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	tokens := r.Tokens // r would escape, and each step would allocate
	for i, c := range choices {
		if c.Pick != nil && tokens[i] >= 0 {
			all.Go(func() { tokens[i] = c.Pick(logits.Row(i), tokens[i]) })
		}
	}
	all.Wait()
	return nil
}

// choose sets the tokens of a step, and checks them.
func (r *Results) choose(b *Batch) error {
	t, err := r.Output(graph.ChosenOutput)
	if err != nil {
		return err
	}
	r.Tokens = t.I32[:t.Rows()]
	if b.picks() {
		if err := r.pick(b.Choices); err != nil {
			return err
		}
	}
	var rows []int
	var errs []error
	for i, id := range r.Tokens {
		if _, err := kernels.Token(id); err != nil {
			rows, errs = append(rows, i), append(errs, fmt.Errorf("row %d: %w", i, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &ChoiceError{rows, errors.Join(errs...)}
}

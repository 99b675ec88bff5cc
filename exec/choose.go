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

// LogitsOutput is the output from which tokens are chosen on the host.
const LogitsOutput = "logits"

// Choice says how a token is chosen from a row of logits.
type Choice struct {
	kernels.Choice
	// Seen has a bit for each token that the penalty applies to, as
	// [graph.SeenType] says; nil: none.
	Seen []int32
	// Pick chooses on the host where operation choose does not suffice: it gets the row of
	// logits, which it must not change nor keep, and the token that the device chose, and
	// returns the one that counts, or one of the numbers below 0 that choose gives. The
	// logits travel to the host then. It is called by any goroutine, while others call
	// those of other rows. nil: the device's token counts.
	Pick func(logits []float32, chosen int32) int32
}

// picks reports whether a row of the batch is chosen on the host.
func (b *Batch) picks() bool {
	return slices.ContainsFunc(b.Choose, func(c Choice) bool { return c.Pick != nil })
}

// admitChoices checks that there is a choice per row, and a graph that chooses.
func (e *Engine) admitChoices(b *Batch, rows int64) error {
	switch {
	case b.Choose == nil:
		return nil
	case e.outputNamed(graph.ChosenOutput) < 0:
		return fmt.Errorf("the graph has no output %s; where it is built, b.Output(%[1]q, b.Choose(…)) makes one of its logits", graph.ChosenOutput)
	case b.picks() && e.outputNamed(LogitsOutput) < 0:
		return fmt.Errorf("the graph has no output %s, from which a token is to be chosen on the host; where it is built, b.Output(%[1]q, …) makes one", LogitsOutput)
	case int64(len(b.Choose)) != rows:
		return fmt.Errorf("%d choices for %d wanted rows", len(b.Choose), rows)
	}
	return nil
}

// fillChoice writes how tokens are chosen.
func fillChoice(b *Batch, in *Input, _ int) error {
	if b.Choose == nil {
		return given(b, in, 0)
	}
	n := graph.RowElems(in.Type.Dims)
	t := kernels.Tensor{DType: graph.F32, Cols: n, Stride: n, F32: operand.View[float32](in.Data)}
	for i := range b.Choose {
		b.Choose[i].Put(t.Row(i))
		if _, ok := kernels.ChoiceOf(&t, i, 1<<24); !ok {
			_, err := kernels.Token(graph.BadChoice)
			return fmt.Errorf("choice %d: %w", i, err)
		}
	}
	return nil
}

// fillSeen writes which tokens have been seen.
func fillSeen(b *Batch, in *Input, _ int) error {
	if b.Choose == nil {
		return given(b, in, 0)
	}
	seen, words := operand.View[int32](in.Data), graph.RowElems(in.Type.Dims)
	for i := range b.Choose {
		row, from := seen[i*words:(i+1)*words], b.Choose[i].Seen
		switch {
		case from == nil:
			clear(row)
		case len(from) != words:
			return fmt.Errorf("choice %d has %d words of tokens that were seen; a bit per token takes %d", i, len(from), words)
		default:
			copy(row, from)
		}
	}
	return nil
}

// Unchosen is the error of a step in which no token could be chosen from some rows, and
// all else is well: there are results, and only sequences that such rows are of must be
// freed or reset.
type Unchosen struct {
	Rows []int // of [Results].Tokens, which has a negative number there
	Err  error
}

// AsUnchosen finds one in an error; nil: it is another, or none.
func AsUnchosen(err error) *Unchosen {
	if err == nil {
		return nil
	}
	var u *Unchosen
	errors.As(err, &u)
	return u
}

func (u *Unchosen) Error() string { return u.Err.Error() }
func (u *Unchosen) Unwrap() error { return u.Err }

// any reports whether one of the rows from first on is among them; of no error, none is.
func (u *Unchosen) any(first, n int) bool {
	return u != nil && slices.ContainsFunc(u.Rows, func(row int) bool { return first <= row && row < first+n })
}

// pick lets the host choose where it is to; rows in which the device found no token, in
// logits that it had not changed, stay without one.
func (r *Results) pick(choices []Choice) error {
	logits, err := r.Output(LogitsOutput)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	tokens := r.Tokens // and not r, which would need memory of its own in each step
	for i, c := range choices {
		if c.Pick != nil && tokens[i] >= 0 {
			all.Go(func() { tokens[i] = c.Pick(logits.Row(i), tokens[i]) })
		}
	}
	all.Wait()
	return nil
}

// chosen checks the tokens that a step chose.
func (r *Results) chosen(b *Batch) error {
	t, err := r.Output(graph.ChosenOutput)
	if err != nil {
		return err
	}
	r.Tokens = t.I32[:t.Rows()]
	if b.picks() {
		if err := r.pick(b.Choose); err != nil {
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
	return &Unchosen{rows, errors.Join(errs...)}
}

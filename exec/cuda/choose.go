package cuda

import (
	"context"
	"fmt"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/internal/operand"
	"github.com/krait-ml/krait/graph"
	kernels "github.com/krait-ml/krait/kernels/cuda"
	"github.com/krait-ml/krait/lowering"
)

// Choosing tokens on the device: choices go in like inputs, tokens come out where
// logits would.

// choosing is where a program has its choices and tokens: bytes of the rank's inputs,
// on the host and on the device, and of its outputs.
type choosing struct {
	rows                  int
	choices, ids, outputs int
}

// Choose runs a batch and chooses a token for each row of an output.
func (m *machine) Choose(ctx context.Context, w *exec.Work, output int, choices []exec.Choice) ([]int32, error) {
	m.choices = choices
	key := programKey{z: sized(w.Sizes), choose: output + 1}
	err := m.run(ctx, key, w)
	if err != nil {
		return nil, err
	}
	m.ran[key.z]++
	r := m.ranks[0]
	c := r.programs.find(key).choose
	ids := operand.View[int32](r.outputsHost.data[c.outputs:][:4*c.rows])
	for i, id := range ids {
		switch id {
		case kernels.BrokenLogits:
			return nil, fmt.Errorf("row %d of the logits holds NaN or +Inf; the model's output is broken", i)
		case kernels.NoToken:
			return nil, fmt.Errorf("row %d of the logits excludes every token", i)
		}
	}
	return ids, nil
}

// chooseTokens appends the kernel that chooses to a program of rank 0.
func (b *builder) chooseTokens(output int) error {
	r, rows := b.r, int(b.z.Rows)
	in, _ := r.ioBytes(b.z)
	b.choose = &choosing{rows: rows, choices: in - choiceBytes(b.z), ids: in - roundUp(4*rows)}
	if rows == 0 {
		return nil
	}
	o := operand.New(r.s, r.s.Outputs[output].Ref)
	base := uint64(r.inputs.ptr)
	return b.launches("choose", lowering.Compute, kernels.Sample(base+uint64(b.choose.ids), r.tensor(&o, b.key), base+uint64(b.choose.choices)))
}

// choiceBytes is the room for choices and for tokens, one after another.
func choiceBytes(z graph.Sizes) int {
	return roundUp(kernels.ChoiceBytes*int(z.Rows)) + roundUp(4*int(z.Rows))
}

// fill writes the choices where the copy to the device takes them from.
func (c *choosing) fill(to []byte, choices []exec.Choice) {
	at := to[c.choices:c.choices]
	for _, x := range choices {
		at = kernels.Choice{Temperature: x.Temperature, TopP: x.TopP, Uniform: x.Uniform, TopK: int32(x.TopK)}.Append(at)
	}
}

// copyIn and copyOut put the copies into the stream.
func (c *choosing) copyIn(r *rank) error {
	if c.rows == 0 {
		return nil
	}
	return r.compute.CopyIn(r.inputs.ptr+driver.Ptr(c.choices), r.inputsHost.data[c.choices:][:kernels.ChoiceBytes*c.rows])
}

func (c *choosing) copyOut(r *rank) error {
	if c.rows == 0 {
		return nil
	}
	return r.compute.CopyOut(r.outputsHost.data[c.outputs:][:4*c.rows], r.inputs.ptr+driver.Ptr(c.ids))
}

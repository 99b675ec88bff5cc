package graph

import "fmt"

// The operands of choose that say how: a row each per row of logits.

// Columns of the operand choice. A row of zeros takes the highest logit.
const (
	ChoiceTemperature = iota // divides the logits; 0: the highest logit, of equal ones the lowest id
	ChoiceTopK               // a whole number; below 1: all
	ChoiceTopP               // 0 and 1: all
	ChoicePenalty            // of repetition: positive logits of seen tokens are divided by it, others multiplied; 0 and 1: none
	ChoiceUniform            // a random number of [0, 1) …
	ChoiceUniformRest        // … and what is to be added to it: f32 has 24 bits, both together 48
	choiceColumns
)

var choiceNames = [choiceColumns]string{"temperature", "top_k", "top_p", "penalty", "uniform", "uniform_rest"}

// ChosenOutput is the output that has the tokens chosen, and ChoiceInput and SeenInput
// the inputs that say how, where a graph has them.
const (
	ChosenOutput = "tokens"
	ChoiceInput  = "choice"
	SeenInput    = "seen"
)

// HiddenOutput is the output that has the hidden states of tokens, and an input of that name those
// that a head reads.
const HiddenOutput = "hidden"

// What choose gives where it cannot give a token.
const (
	BrokenLogits = -1 // a logit is NaN or +Inf
	NoToken      = -2 // all logits are -Inf
	BadChoice    = -3 // the row of choice is not what its columns may be
)

// ChoiceType is the type of the operand choice: f32[o temperature:1|top_k:1|…].
func ChoiceType() Type {
	var d Dim
	for _, name := range choiceNames {
		d.Fields = append(d.Fields, Field{Name: name, Size: 1})
	}
	return TypeOf(F32, Symbol(Rows), d)
}

// SeenType is the type of the operand seen: a bit per token of the vocabulary, set
// where the repetition penalty applies; token i is bit i%32 of word i/32.
func SeenType(vocab int) Type { return TypeOf(I32, Symbol(Rows), Size(SeenWords(vocab))) }

// SeenWords is the number of words that have a bit for each token.
func SeenWords(vocab int) int { return (vocab + 31) / 32 }

func checkChoose(n *Node, b *binding) error {
	if d := ChoiceType().Dims[1]; !n.Args[1].Type.Dims[1].equal(d) {
		return fmt.Errorf("operand 1 must say how a token is chosen, f32[o %s], found %s", d, n.Args[1].Type)
	}
	if want := SeenWords(b.size('v')); b.size('b') != want {
		return fmt.Errorf("operand 2 must have a bit per token: %d words for a vocabulary of %d, found %d", want, b.size('v'), b.size('b'))
	}
	return nil
}

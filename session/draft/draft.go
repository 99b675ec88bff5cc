// Package draft guesses the next tokens of a sequence, for speculative decoding.
//
// A guess changes no text: the model verifies it, and a token counts only if the model chooses it.
package draft

import (
	"fmt"
	"slices"
	"strings"
)

// Drafter guesses the next tokens of one sequence. One goroutine at a time uses it.
type Drafter interface {
	// Kind is its name in flags, requests and metrics.
	Kind() string
	// Read adds tokens to the sequence: those of the prompt, then those chosen.
	Read(tokens ...int)
	// Grade classes the guess that Draft would make: guesses of one grade are right about equally
	// often. It is below Grades, and negative if there is no guess.
	Grade() int
	// Draft appends at most n guesses of the next tokens to dst. They are of the model's vocabulary.
	Draft(dst []int, n int) []int
	// Close ends the sequence.
	Close()
}

// Failing is a drafter that can fail: then it makes no more drafts.
type Failing interface {
	Drafter
	// Err is why; nil: it has not failed.
	Err() error
}

// HiddenReader is a drafter that reads hidden states of the model, too.
type HiddenReader interface {
	Drafter
	// ReadHidden adds the hidden state of the token at, which the caller may change afterwards. It is
	// called for the tokens of a step in order, drafts included, before the step's tokens are chosen;
	// a later call for the same token replaces its state. The first tokens may have none.
	ReadHidden(at int, row []float32)
}

// Grades is the number of grades.
const Grades = 8

// Kinds lists the kinds of drafters.
var Kinds = []string{"ngram", "draft", MTP}

// ModelPrefix comes before the folder of a model that drafts, in flags and options.
const ModelPrefix = "draft:"

// MTP is the value of flags and requests for drafts of the model's MTP head.
const MTP = "mtp"

// Values of flags and requests: no drafts, and those that the model has or can have.
const (
	Off  = "off"
	Auto = "auto"
)

// Names are the values of requests: no drafts, those that the model was opened with, or a drafter.
var Names = []string{Off, Auto, "ngram", MTP}

// Check returns an error unless a value of a flag or a request is known.
func Check(value string) error {
	if slices.Contains(Names, value) || len(value) > len(ModelPrefix) && strings.HasPrefix(value, ModelPrefix) {
		return nil
	}
	if len(value) > 64 {
		value = value[:64] + "…"
	}
	return fmt.Errorf("%q; it must be %s or %sDIR", value, strings.Join(Names, ", "), ModelPrefix)
}

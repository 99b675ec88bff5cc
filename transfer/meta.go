// Package transfer splits requests between machines: one reads a prompt, another goes on from
// the states and rows of caches that came of it. A [Server] has a [Source] read prompts, and
// lends what it kept; a [Client] asks for it, reads exactly what its ranks own, straight to its
// place, and gives the rest back.
//
// The protocol is in docs/disaggregation.md. Control goes over one connection; data over
// others, or by UCX, or by memory where both sides are one process.
package transfer

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// Protocol is the version of what is said. Sides of different ones refuse each other.
const Protocol = 4

// Meta is what the sides say of themselves, once.
type Meta struct {
	Protocol   int    `json:"protocol"`
	Model      string `json:"model"`  // a fingerprint of graph and weights
	Name       string `json:"name"`   // of the model, for people
	Ranks      string `json:"ranks"`  // how many, and by which strategy, for people
	States     string `json:"states"` // formats, for people
	Keeps      string `json:"keeps"`  // what the ranks keep, and where: [lowering.Keeps]
	PageTokens int    `json:"page_tokens"`
	// Codecs is what states and rows travel in, as [state.Codecs] names it; empty: as ranks hold
	// them. The decode side asks for it, and the prefill side says it again.
	Codecs string `json:"codecs,omitempty"`
}

// end reads what a side keeps, which may come from anyone.
func (m *Meta) end() (lowering.End, error) {
	k, err := lowering.ParseKeeps(m.Keeps)
	if err != nil {
		return lowering.End{}, fmt.Errorf("what it keeps: %w", err)
	}
	if m.PageTokens < 1 || m.PageTokens > state.MaxPageTokens {
		return lowering.End{}, fmt.Errorf("pages of %d tokens; 1 to %d are possible", m.PageTokens, state.MaxPageTokens)
	}
	return lowering.End{Keeps: k, PageTokens: m.PageTokens}, nil
}

// ErrDiffers is the error of sides that do not fit each other. To try again is of no use.
var ErrDiffers = errors.New("prefill and decode do not fit")

func differ(what, prefill, decode string) error {
	return fmt.Errorf("%w: %s is %s at the prefill side, and %s at the decode side", ErrDiffers, what, prefill, decode)
}

// speaks checks that both sides have the same version of the protocol.
func speaks(prefill, decode int) error {
	if prefill != decode {
		return differ("the protocol's version", fmt.Sprint(prefill), fmt.Sprint(decode))
	}
	return nil
}

// moves checks that a sequence can go from one side to the other, and says what moves.
func moves(prefill, decode *Meta) (*lowering.Transfer, error) {
	if err := speaks(prefill.Protocol, decode.Protocol); err != nil {
		return nil, err
	}
	if prefill.Model != decode.Model {
		return nil, differ("the model", short(prefill.Name, prefill.Model), short(decode.Name, decode.Model))
	}
	from, err := prefill.end()
	if err != nil {
		return nil, fmt.Errorf("%w: the prefill side: %w", ErrDiffers, err)
	}
	to, err := decode.end()
	if err != nil {
		return nil, fmt.Errorf("%w: the decode side: %w", ErrDiffers, err)
	}
	x, err := lowering.NewTransfer(from, to)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (at the prefill side states are in %.40q, at the decode side in %.40q)", ErrDiffers, err, prefill.States, decode.States)
	}
	return x, nil
}

// short is a model for people.
func short(name, fingerprint string) string {
	return fmt.Sprintf("%.60q (graph and weights %.12s)", name, fingerprint)
}

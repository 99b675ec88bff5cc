// Package transfer disaggregates prefill and decode: one machine prefills a prompt, another resumes
// from its recurrent states and KV pages. A [Server] prefills by its [Source] and lends the state;
// a [Client] requests it, reads exactly the parts that its ranks own, straight to their place, and
// releases it.
//
// The protocol is in docs/disaggregation.md. Control uses one connection; data uses others, or UCX,
// or memory if both sides are one process.
package transfer

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// Protocol is the version of the protocol. Sides of different versions refuse each other.
const Protocol = 6

// Meta describes the model of a side, in the handshake.
type Meta struct {
	Protocol   int    `json:"protocol"`
	Model      string `json:"model"`  // fingerprint of graph and weights
	Name       string `json:"name"`   // of the model, for messages
	Ranks      string `json:"ranks"`  // number and strategy, for messages
	States     string `json:"states"` // formats, for messages
	Layout     string `json:"keeps"`  // states of the ranks and their placement: [lowering.StateLayout]
	PageTokens int    `json:"page_tokens"`
	// Codecs encode states and KV pages in transit, as [state.Codecs] names them; empty: none. The
	// decode side requests them, and the prefill side confirms.
	Codecs string `json:"codecs,omitempty"`
}

// end parses the states of a side. The input is not trusted.
func (m *Meta) end() (lowering.End, error) {
	k, err := lowering.ParseStateLayout(m.Layout)
	if err != nil {
		return lowering.End{}, fmt.Errorf("its states: %w", err)
	}
	if m.PageTokens < 1 || m.PageTokens > state.MaxPageTokens {
		return lowering.End{}, fmt.Errorf("pages of %d tokens; the size must be from 1 to %d", m.PageTokens, state.MaxPageTokens)
	}
	return lowering.End{States: k, PageTokens: m.PageTokens}, nil
}

// ErrDiffers is the error of sides that do not fit each other. A retry is useless.
var ErrDiffers = errors.New("prefill and decode do not fit")

func differ(what, prefill, decode string) error {
	return fmt.Errorf("%w: %s is %s at the prefill side, and %s at the decode side", ErrDiffers, what, prefill, decode)
}

// checkProtocol checks that both sides have the same version of the protocol.
func checkProtocol(prefill, decode int) error {
	if prefill != decode {
		return differ("the protocol's version", fmt.Sprint(prefill), fmt.Sprint(decode))
	}
	return nil
}

// moves returns the transfer of a sequence from one side to the other, or why it is not possible.
func moves(prefill, decode *Meta) (*lowering.Transfer, error) {
	if err := checkProtocol(prefill.Protocol, decode.Protocol); err != nil {
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

// short describes a model in messages.
func short(name, fingerprint string) string {
	return fmt.Sprintf("%.60q (graph and weights %.12s)", name, fingerprint)
}

package prove

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Certificate says why a partitioned graph is right and what it costs.
type Certificate struct {
	Version     int      `json:"version"` // of this format, [versions.Certificate]
	Model       string   `json:"model"`
	Ranks       int      `json:"ranks"`
	Mesh        string   `json:"mesh,omitempty"` // of two axes, each with a certificate in Axes
	Axis        string   `json:"axis,omitempty"` // of a certificate in Axes
	Nodes       int      `json:"nodes"`          // whose layouts were derived again
	Class       string   `json:"class"`
	Parts       []Part   `json:"parts"`
	Collectives int      `json:"collectives"`
	Sent        Volume   `json:"sent_bytes"` // per rank
	SentOne     int64    `json:"sent_bytes_one_token"`
	WeightBytes int64    `json:"weight_bytes"` // of each parameter the largest share
	Minimum     Minimum  `json:"minimum"`
	Outside     []string `json:"outside_of_class"` // blocks that the class does not have
	Exact       bool     `json:"exact"`            // nothing is rounded for transport
	// Execution says what running both graphs showed. The proof does not run anything:
	// it is for who does to set.
	Execution fmt.Stringer `json:"execution"`
	// Axes has a certificate for each axis of a mesh of two. Its bytes are of values as they are
	// whole along the other axis; a rank sends what it has of them along that.
	Axes []*Certificate `json:"axes,omitempty"`
}

// Part is a block, and the blocks that are the same, or all that is outside of blocks.
type Part struct {
	Blocks      []string     `json:"blocks"` // none: outside of blocks
	Collectives []Collective `json:"collectives"`
	Sent        Volume       `json:"sent_bytes"`
	SentOne     int64        `json:"sent_bytes_one_token"`
	WeightBytes int64        `json:"weight_bytes"`
	Minimum     Minimum      `json:"minimum"`
	Outside     []string     `json:"outside_of_class"` // why the class does not have it
	Inexact     []string     `json:"inexact"`          // what is rounded for transport
	Rounded     []Rounded    `json:"rounded"`          // how far that is off, at most
	Notes       []string     `json:"notes"`            // what passes say of the computations

	narrow bool // some payloads are rounded
}

// Collective is one launch. Names are relative to the block.
type Collective struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"` // of its first result
	Values   []string `json:"values"`
	Reasons  []string `json:"made_by"` // what made the values partial, or split
	WholeFor []string `json:"needed_by"`
	Elements Poly     `json:"payload_elements"`
	Payload  Poly     `json:"payload_bytes"`
	Sent     Volume   `json:"sent_bytes"`
	SentOne  int64    `json:"sent_bytes_one_token"`

	to graph.LayoutKind
}

// MarshalJSON writes the volume as text.
func (v Volume) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// Poly is a polynomial in the sizes of a batch, in JSON as its text.
type Poly struct{ graph.Poly }

// MarshalJSON writes 240·t.
func (p Poly) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// JSON is the certificate for programs; its fields keep their order.
func (c *Certificate) JSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(c)
	return b.Bytes(), err
}

// consistent checks that what is of the class costs no less than the minimum: part by part, or all
// together where parts share parameters, of which the minimum has the placement that is best for
// all of them together.
func (c *Certificate) consistent(shared bool) error {
	if !shared {
		for _, p := range c.Parts {
			if err := p.consistent(); err != nil {
				return err
			}
		}
		return nil
	}
	all := Part{Minimum: c.Minimum, Outside: c.Outside, Sent: c.Sent, SentOne: c.SentOne, Collectives: make([]Collective, c.Collectives)}
	for _, p := range c.Parts {
		all.narrow = all.narrow || p.narrow
	}
	return all.consistent()
}

func (p Part) consistent() error {
	m := p.Minimum
	fewer := len(p.Collectives) < m.Collectives || len(p.Collectives) == m.Collectives && p.Sent.parts() < m.parts && !p.narrow
	if len(p.Outside) > 0 || m.None != "" || m.Unknown != "" || !fewer {
		return nil
	}
	return fmt.Errorf("BUG: %s has %d collectives and sends %d bytes, less than the minimum of %d and %d", p.title(), len(p.Collectives), p.SentOne, m.Collectives, m.SentBytes)
}

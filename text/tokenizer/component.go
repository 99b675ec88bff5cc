package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A component reads one stage of the pipeline: a JSON object that a "type"
// names, or a Sequence of such objects. Each becomes a T.
type component[T any] struct {
	field    string // the key of the elements of a Sequence
	sequence func(o *object, parts []T) T
	read     map[string]func(o *object) T
}

// A chain is what is known of the parts that a text goes through one after the other. It bounds
// them, far above what tokenizers need, so that no file makes encoding or decoding endless: a text
// must not double in every part. Encoding is bounded by what it does, too: see meter.
type chain struct {
	parts   int
	growth  int // how many times as long a text may become, less 1
	decodes bool
	rewrote string // a part that makes it uncertain where the input begins
}

const (
	maxParts  = 64
	maxGrowth = 10000

	// What decoding does has no other bound.
	maxDecodedGrowth  = 100
	maxDecoderProgram = 100
)

// grows records that a part may make a text up to times as long.
func (o *object) grows(times int) {
	most := maxGrowth
	if o.chain.decodes {
		most = maxDecodedGrowth
	}
	growth := (o.chain.growth + 1) * max(1, min(times, 2*most))
	if growth > most {
		o.fail("could make a text more than %d times as long, which is not supported", most)
	}
	o.chain.growth = min(growth, most) - 1
}

// rewrites says that after a part the first character of a piece is no longer one of the input.
func (o *object) rewrites() { o.chain.rewrote = o.where }

func (c component[T]) parse(where string, raw json.RawMessage, parts *chain) (part T, err error) {
	o := newObject(where, raw)
	o.chain = parts
	kind := o.text("type")
	read, known := c.read[kind]
	if parts.parts++; parts.parts > maxParts {
		o.fail("has more than %d parts, which is not supported", maxParts)
	}
	switch {
	case o.err != nil:
	case kind == "Sequence":
		part = c.parseSequence(o)
	case known:
		o.where = fmt.Sprintf("%s (%s)", where, kind)
		part = read(o)
	default:
		names := strings.Join(slices.Sorted(maps.Keys(c.read)), ", ")
		o.fail("has type %q, which is not supported (supported: Sequence, %s)", kind, names)
	}
	return part, o.done()
}

func (c component[T]) parseSequence(o *object) T {
	var parts []T
	for i, raw := range o.list(c.field) {
		part, err := c.parse(fmt.Sprintf("%s.%s[%d]", o.where, c.field, i), raw, o.chain)
		if err != nil {
			o.abort(err)
			break
		}
		parts = append(parts, part)
	}
	return c.sequence(o, parts)
}

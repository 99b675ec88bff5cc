package constrain

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/krait-ml/krait/internal/bail"
)

// Bounds of schemas and of what is made of them.
const (
	maxNesting      = 256     // of values in a schema
	maxAlternatives = 512     // of anyOf and the like, and properties of an object
	maxTerms        = 256     // alternatives in the end
	maxNodes        = 1 << 15 // combinations of schemas
	maxMeets        = 1 << 19 // pairs of alternatives
	maxAutomaton    = 1 << 12 // states of a pattern
	maxPatternWork  = 1 << 20 // instructions of a pattern that are followed
	maxCounted      = 64      // of minProperties and maxProperties
	maxContains     = 3       // of an array
	maxRegions      = 64      // of names, by the patterns that they match
	maxChars        = 1 << 12 // of a string with a length, and
	maxItems        = 1 << 10 // of an array with one
	maxRegionStates = 1 << 14 // of the automatons of names, by a schema's patterns
	maxModulus      = 1 << 11 // of multipleOf, times a power of ten
	maxExponent     = 400     // of numbers in a schema
	unbounded       = 1 << 30 // a length without a bound
)

// Object returns the grammar of any JSON object.
var Object = sync.OnceValue(func() *Grammar {
	n := newNetwork()
	whole := n.rules[n.newRule()]
	c := newCommon(n, JSON)
	n.callTo(whole.start, whole.end, c.object)
	n.finish()
	return &n.Grammar
})

// compiler makes rules of schemas. Its methods panic with their errors.
type compiler struct {
	net               *network
	words             Words
	common            common
	root              *value
	anything, nothing *node
	nodes             []*node
	leaves            map[*value]*node
	conjunctions      map[string]*node
	exceptions        map[*node]*node
	patterns          map[string]*named
	ruleOf            map[*node]int32
	made              map[any]int32 // rules by what they read
	wide              bool          // of a node, what encloses it; else what lies within
	work              int
}

// Compile makes the grammar of a JSON schema. Objects have the properties that it names, in its
// order, and behind them others if it allows them. A keyword that texts cannot be held to is an
// error with its place, as is a schema that no text of bounded depth fulfils. Members of a schema
// that are no keywords of JSON Schema have no effect.
func Compile(schema []byte) (_ *Grammar, err error) {
	defer bail.Catch(&err)
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	root.scope(false)
	c := newCompiler(JSON)
	c.root = root
	n, whole := c.leaf(root), c.net.rules[0]
	c.net.callTo(whole.start, whole.end, c.rule(n))
	if !c.net.finish() {
		return nil, c.impossible(n)
	}
	return &c.net.Grammar, nil
}

// newCompiler returns a compiler whose rule 0 is the whole text, without edges yet.
func newCompiler(words Words) *compiler {
	c := &compiler{net: newNetwork(), words: words, leaves: map[*value]*node{}, conjunctions: map[string]*node{}, exceptions: map[*node]*node{},
		patterns: map[string]*named{}, ruleOf: map[*node]int32{}, made: map[any]int32{}}
	c.net.newRule()
	c.common = newCommon(c.net, words)
	c.anything, c.nothing = c.node(node{}), c.node(node{})
	for i := range c.anything.of {
		c.anything.of[i].terms = c.any()
		c.anything.of[i].done, c.nothing.of[i].done = true, true
	}
	c.ruleOf[c.anything] = c.common.any
	return c
}

// impossible is the error of a schema that no text fulfils: it names the part that must be there
// and that nothing fulfils, if there is one.
func (c *compiler) impossible(n *node) error {
	for _, part := range slices.Backward(c.nodes) {
		if u := part.of[0]; part.schema != nil && u.done && len(u.terms) == 0 && (part == n || len(n.of[0].terms) == 0) {
			return fmt.Errorf("%s: no text fulfils it", part.place())
		}
	}
	if n == c.nothing {
		return fmt.Errorf("#: no text fulfils it")
	}
	return fmt.Errorf("#: no text fulfils the schema: a part of it requires itself, without an end, or is nested too deep")
}

// rule is the rule of a node. Values of kinds that no keyword is about are left out where there
// are others: a schema with properties is of objects.
func (c *compiler) rule(n *node) int32 {
	if id, ok := c.ruleOf[n]; ok {
		return id
	}
	id := c.net.newRule()
	c.ruleOf[n] = id
	defer placed(n)
	r, terms := c.net.rules[id], c.terms(n)
	free := !slices.ContainsFunc(terms, func(t term) bool { return !t.free })
	for _, t := range terms {
		if t.free == free {
			c.term(r, t)
			bail.If(c.net.err)
		}
	}
	return id
}

// placed, deferred, puts the place of a node before an error without one.
func placed(n *node) {
	switch e := recover().(type) {
	case nil:
	case runtime.Error:
		panic(e)
	case error:
		if !strings.HasPrefix(e.Error(), "#") {
			e = fmt.Errorf("%s: %w", n.place(), e)
		}
		panic(e)
	default:
		panic(e)
	}
}

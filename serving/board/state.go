package board

import (
	"cmp"
	"slices"
)

// State is the answer of /board: figures of the whole server, for all clients together.
type State struct {
	Model string  `json:"model"`
	Now   float64 `json:"now"` // seconds since the server was made, as are all times
	Ranks int     `json:"ranks"`
	Slots int     `json:"slots"`

	Running   int  `json:"running"` // texts
	Waiting   int  `json:"waiting"`
	Tokens    int  `json:"tokens"` // upper bound on tokens of these
	MaxWait   int  `json:"max_waiting"`
	MaxTokens int  `json:"max_tokens"`
	Draining  bool `json:"draining"`

	Requests []Request `json:"requests"` // with slots
	Totals   Totals    `json:"totals"`   // while a page was open
	// Steps are the last steps: number, microseconds, sequences in prefill, their tokens, and
	// sequences in decode.
	Steps [][5]int64 `json:"steps"`
	// Minute has the prefill and the decode tokens of each of the last sixty seconds, of which the
	// last one is not over. It is recorded without a page, too.
	Minute [60][2]int64 `json:"minute"`
	Lanes  *Lanes       `json:"lanes"` // null: ranks are not measured
	Cache  *Cache       `json:"cache"` // null: no prefix cache
}

// Request is the progress of a text.
type Request struct {
	Slot   int `json:"slot"`
	Number int `json:"number"` // in the order of arrival
	Prompt int `json:"prompt"` // tokens
	Read   int `json:"read"`   // of these, processed so far
	Cached int `json:"cached"` // of these, from the prefix cache
	Chosen int `json:"chosen"`
	Most   int `json:"most"`
}

// Totals are sums over steps.
type Totals struct {
	Steps   int64   `json:"steps"`
	Prefill int64   `json:"prefill"` // tokens
	Decode  int64   `json:"decode"`  // tokens
	Busy    float64 `json:"busy"`    // seconds in steps
}

// Cache is the prefix cache on the device.
type Cache struct {
	Capacity     int64  `json:"capacity"`
	Bytes        int64  `json:"bytes"`
	States       int    `json:"states"`
	Requests     int    `json:"requests"` // lookups
	Hits         int    `json:"hits"`
	PromptTokens int64  `json:"prompt_tokens"` // of these
	HitTokens    int64  `json:"hit_tokens"`
	Evictions    int    `json:"evictions"`
	Nodes        []Node `json:"nodes"` // parents first
	More         int    `json:"more"`  // nodes left out
}

// Node is the size and use of a node of the tree, without its tokens.
type Node struct {
	Parent int     `json:"parent"` // -1: the root
	From   int     `json:"from"`   // tokens before its edge
	To     int     `json:"to"`     // tokens up to its end
	State  bool    `json:"state"`
	Bytes  int64   `json:"bytes"`
	Hits   int     `json:"hits"`
	Unused float64 `json:"unused"` // seconds
}

const mostNodes = 256

// bound keeps the most recently used nodes and their ancestors, parents first.
func (c *Cache) bound() {
	order := make([]int, len(c.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Nodes[a].Unused, c.Nodes[b].Unused) })
	take, taken := make([]bool, len(c.Nodes)), 0
	for _, i := range order {
		var path []int
		for n := i; n >= 0 && !take[n]; n = c.Nodes[n].Parent {
			path = append(path, n)
		}
		if taken+len(path) > mostNodes {
			continue
		}
		taken += len(path)
		for _, n := range path {
			take[n] = true
		}
	}
	var list []int
	for i := range c.Nodes {
		if take[i] {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(c.Nodes[a].From, c.Nodes[b].From) })
	at := map[int]int{-1: -1}
	for place, i := range list {
		at[i] = place
	}
	nodes := make([]Node, len(list))
	for place, i := range list {
		nodes[place] = c.Nodes[i]
		nodes[place].Parent = at[c.Nodes[i].Parent]
	}
	c.More = len(c.Nodes) - len(nodes)
	c.Nodes = nodes
}

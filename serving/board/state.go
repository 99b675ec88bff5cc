package board

import (
	"cmp"
	"slices"
)

// State is what /board says: numbers of the whole server, whoever asked for what.
type State struct {
	Model string  `json:"model"`
	Now   float64 `json:"now"` // seconds since the server was made, as are all times
	Ranks int     `json:"ranks"`
	Slots int     `json:"slots"`

	Running   int  `json:"running"` // texts
	Waiting   int  `json:"waiting"`
	Tokens    int  `json:"tokens"` // that these may come to have
	MaxWait   int  `json:"max_waiting"`
	MaxTokens int  `json:"max_tokens"`
	Draining  bool `json:"draining"`

	Requests []Request `json:"requests"` // those that have slots
	Totals   Totals    `json:"totals"`   // while somebody looked
	// Steps are the last: number, microseconds, prompts that were read, tokens of these, and
	// rows of one token.
	Steps [][5]int64 `json:"steps"`
	Lanes *Lanes     `json:"lanes"` // not there: nobody measures what ranks do
	Cache *Cache     `json:"cache"` // not there: no prefix cache
}

// Request is how far a text has come.
type Request struct {
	Slot   int `json:"slot"`
	Number int `json:"number"` // in the order of arrival
	Prompt int `json:"prompt"` // tokens
	Read   int `json:"read"`   // of these, by now
	Cached int `json:"cached"` // of these, by the prefix cache
	Chosen int `json:"chosen"`
	Most   int `json:"most"`
}

// Totals count.
type Totals struct {
	Steps   int64   `json:"steps"`
	Prefill int64   `json:"prefill"` // tokens of prompts
	Decode  int64   `json:"decode"`  // rows of one token
	Busy    float64 `json:"busy"`    // seconds in steps
}

// Cache is the prefix cache on the device.
type Cache struct {
	Capacity     int64  `json:"capacity"`
	Bytes        int64  `json:"bytes"`
	States       int    `json:"states"`
	Requests     int    `json:"requests"` // that were looked up
	Hits         int    `json:"hits"`
	PromptTokens int64  `json:"prompt_tokens"` // of these
	HitTokens    int64  `json:"hit_tokens"`
	Evictions    int    `json:"evictions"`
	Nodes        []Node `json:"nodes"` // parents first
	More         int    `json:"more"`  // nodes that are not shown
}

// Node is a node of the tree: how long, how large, how often used, and nothing of what it is.
type Node struct {
	Parent int     `json:"parent"` // -1: the root
	From   int     `json:"from"`   // tokens before its edge
	To     int     `json:"to"`     // and up to its end
	State  bool    `json:"state"`
	Bytes  int64   `json:"bytes"`
	Hits   int     `json:"hits"`
	Unused float64 `json:"unused"` // seconds
}

const mostNodes = 256

// bound leaves the nodes that were used last, with all above them, parents first.
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

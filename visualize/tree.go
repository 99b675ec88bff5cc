package visualize

import (
	"fmt"
	"io"
	"strconv"

	"github.com/emicklei/dot"
	"github.com/krait-ml/krait/session/prefix"
)

// Tree draws the nodes of a prefix cache, as [prefix.Tree.Nodes] returns them: the tokens of each
// edge, and in boxes the length of the prefix, its snapshot, and its last use. The candidate with
// the lowest score, which is evicted next, has an orange frame.
func Tree(w io.Writer, nodes []prefix.Node, title string) error {
	return writeln(w, drawTree(nodes, title))
}

func drawTree(nodes []prefix.Node, title string) string {
	p := newPicture(false)
	at := p.cluster("", plain("the tree, from the root"))
	root := at.put(at.Node(p.next())).Attr("label", plain("root"))
	next, boxes := lowest(nodes), make([]dot.Node, len(nodes))
	for i, n := range nodes {
		held := "bare"
		if n.State {
			held = "snapshot"
		}
		boxes[i] = at.put(at.Node(p.next())).Attr("label", nodeLabel(n)).Attr("fillcolor", p.colour(held).fill)
		if i == next {
			boxes[i].Attr("color", p.colour("next").line).Attr("penwidth", "2")
		}
	}
	for i, n := range nodes {
		from := root
		if n.Parent >= 0 {
			from = boxes[n.Parent]
		}
		from.Edge(boxes[i]).Attr("label", plain("+"+commas(int64(n.To-n.From)))).Attr("fontname", fontName)
	}
	return p.text(title)
}

// lowest returns the candidate with the lowest score: of equals the older, then the one made first.
func lowest(nodes []prefix.Node) int {
	best := -1
	for i, n := range nodes {
		if !n.Candidate {
			continue
		}
		if best < 0 || n.Score < nodes[best].Score || n.Score == nodes[best].Score && n.Time < nodes[best].Time {
			best = i
		}
	}
	return best
}

func nodeLabel(n prefix.Node) dot.HTML {
	var l label
	l.line(commas(int64(n.To))+" tokens", "", textSize, n.State)
	l.line(fmt.Sprintf("%.1f MB", float64(n.Bytes)/1e6), grey, noteSize, false)
	l.line(fmt.Sprintf("used at %.1f s", n.Time), grey, noteSize, false)
	if n.Candidate {
		l.line(fmt.Sprintf("score %.2f", n.Score), grey, noteSize, false)
	}
	return l.html()
}

// commas writes 732544 as 732,544.
func commas(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

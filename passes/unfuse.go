package passes

import (
	"errors"
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// Scan says how a selective scan runs: as one operation, or in steps that leave what they
// make in memory.
type Scan int

const (
	Fused   Scan = iota // one operation; its states stay where they are computed
	Unfused             // its terms, their prefix scan, what it puts out: tensors of tokens × channels × states
)

// ParseScan reads fused or unfused; empty is fused.
func ParseScan(text string) (Scan, error) {
	switch text {
	case "", "fused":
		return Fused, nil
	case "unfused":
		return Unfused, nil
	}
	return Fused, fmt.Errorf("scan is %q; it must be fused or unfused", text)
}

// unfuseScan writes each selective scan as its steps. Four tensors of tokens × channels ×
// states live at the prefix scan, which is not in place: this is what the published
// evaluation ran, and what a scan takes where no kernel does all of it.
func unfuseScan(g *graph.Graph, _ *Options) (*graph.Graph, error) {
	r := rewrite(g, graph.FusedStage, g.Ranks)
	found := false
	for _, n := range g.Nodes {
		var err error
		if n.Op.Name == "selective_scan" {
			found, err = true, r.scanInSteps(n)
		} else {
			err = r.copy(n)
		}
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("scan unfused: the graph has no selective_scan; an ssd_scan runs in chunks of matrix products and has no tensor of [tokens, channels, states]; leave out scan")
	}
	return r.finish()
}

// scanInSteps writes scan n: u dt A B C h seg.
func (r *rewriter) scanInSteps(n *graph.Node) error {
	a, name := r.args(n), n.Name()
	terms, err := r.node(n, "scan_terms", nil, []string{name + "_decay", name + "_input"}, nil, a[:4]...)
	if err != nil {
		return err
	}
	prefix, err := r.node(n, "scan_prefix", nil, []string{name + "_products", name + "_sums"}, nil, terms.Results[0], terms.Results[1], a[6])
	if err != nil {
		return err
	}
	_, err = r.node(n, "scan_output", nil, names(n.Results), n.Results, prefix.Results[0], prefix.Results[1], a[4], a[5], a[6])
	return err
}

// Package explain writes one page about what the compiler did with a model: the graph
// after every pass, collectives, what ranks run and when, memory, and the proof.
//
// The page is one file without external parts. It has its data as JSON,
// which its script shows; texts of models are never markup. Blocks that are equal are
// there once, and the script writes them for any layer.
package explain

import (
	"errors"
	"strings"
	"unicode"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes/prove"
)

// Input is what a page is about.
type Input struct {
	Model    string  // its name
	Strategy string  // how it lies over ranks
	Facts    []Fact  // more lines of the overview, in order
	Stages   []Stage // the model's graph, and it after each pass that changed it
	// Certificate is of the partitioned graph; without one, Unproved says why.
	Certificate *prove.Certificate
	Unproved    string
	Schedules   []*lowering.Schedule // of all ranks
	Runs        []Run
}

// Fact is a line of the overview.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Stage is a graph, and the pass that made it.
type Stage struct {
	Pass string // empty: the model as its family defines it
	Doc  string // what the pass does, in a line
	*graph.Graph
}

// Run is one step of a batch: a prompt, a token.
type Run struct {
	Name  string // prompt, decode
	About string // what the batch is, in words
	Sizes graph.Sizes
	// Events say when each rank was at each of its steps, on a clock of their own;
	// none: the page shows only their order.
	Events []exec.Event
	Clock  string // where the events come from: a profile's name, or a measurement
}

// document is all data of a page.
type document struct {
	Title       string             `json:"title"`
	Model       string             `json:"model"`
	Strategy    string             `json:"strategy"`
	Ranks       int                `json:"ranks"`
	Facts       []Fact             `json:"facts"`
	Ops         map[string]opInfo  `json:"ops"`
	Sections    []string           `json:"sections"` // names: before the layers, each layer, after them
	Stages      []stage            `json:"stages"`
	Steps       []step             `json:"steps"`
	Runs        []run              `json:"runs"`
	Collectives []collective       `json:"collectives"`
	Memory      []memory           `json:"memory"` // by rank
	Regions     []string           `json:"regions"`
	Certificate *prove.Certificate `json:"certificate"`
	Text        string             `json:"certificate_text"`
	Unproved    string             `json:"unproved"`
	Executed    bool               `json:"executed"`
}

// opInfo is what a row of the table of operations says.
type opInfo struct {
	Doc   string `json:"doc"`
	Class string `json:"class"`
	Rule  string `json:"rule,omitempty"`
	Work  string `json:"work"` // multiply, mix, other
}

var classes = map[graph.Class]string{graph.Leaf: "leaf", graph.View: "view", graph.Compute: "compute", graph.Collective: "collective", graph.Relayout: "relayout"}

// assemble collects what the page shows.
func assemble(in *Input) (*document, error) {
	if len(in.Stages) == 0 || len(in.Schedules) == 0 {
		return nil, errors.New("a page needs a graph, and the schedules of all ranks")
	}
	plan, err := lowering.NewPlan(in.Schedules)
	if err != nil {
		return nil, err
	}
	d := &document{Model: clean(in.Model), Strategy: clean(in.Strategy), Ranks: len(in.Schedules), Ops: map[string]opInfo{},
		Facts: []Fact{}, Runs: []run{}, Collectives: []collective{}, Regions: regionNames, Certificate: in.Certificate, Unproved: clean(in.Unproved)}
	for _, f := range in.Facts {
		d.Facts = append(d.Facts, Fact{clean(f.Name), clean(f.Text)})
	}
	d.Title = d.Model
	if in.Certificate != nil {
		d.Text, d.Executed = clean(in.Certificate.String()), in.Certificate.Execution != nil
	}
	d.stages(in.Stages)
	d.steps(in.Schedules[0])
	for i := range in.Runs {
		r, err := d.run(in.Schedules, &in.Runs[i])
		if err != nil {
			return nil, err
		}
		d.Runs = append(d.Runs, *r)
	}
	d.collectives(in, plan)
	for i, s := range in.Schedules {
		d.Memory = append(d.Memory, memoryOf(s, &plan.Ranks[i]))
	}
	foldMemory(d.Memory)
	return d, nil
}

// clean makes any text fit to be shown: what cannot be seen, or turns what is around
// it, is replaced.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.In(r, unicode.C, unicode.Zl, unicode.Zp)) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

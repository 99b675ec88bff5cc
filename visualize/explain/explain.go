// Package explain writes a page that explains a compiled model: the graph after every pass,
// collectives, timelines of ranks, memory, and the proof.
//
// The page is one file without external parts. Its script shows data in it (JSON); texts of models
// are never markup. Equal blocks are stored once, and the script writes them for any layer.
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

// Input is the content of a page.
type Input struct {
	Model    string  // its name
	Strategy string  // of sharding
	Facts    []Fact  // more lines of the overview, in order
	Stages   []Stage // the model's graph, and the graph after each pass that changed it
	// Certificate of the partitioned graph; nil: Unproved is the reason.
	Certificate *prove.Certificate
	Unproved    string
	Schedules   []*lowering.Schedule // of all ranks
	Runs        []Run
	Against     *Input // the model as another strategy or rank count compiles it; nil: none
}

// Fact is a line of the overview.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Stage is a graph, and the pass that made it.
type Stage struct {
	Pass string // empty: the model as its family defines it
	Doc  string // of the pass, one line
	*graph.Graph
}

// Run is a step: prefill or decode.
type Run struct {
	Name  string // prompt, decode
	About string // description of the batch
	Sizes graph.Sizes
	// Events are the times of each rank's steps, on a common clock; none: the page shows only their
	// order.
	Events []exec.Event
	Clock  string // source of the events: a profile, or a measurement
	// Measured are the times of a step of these sizes on a device, which the timeline shows below the
	// events; MeasuredOn names the device.
	Measured   []exec.Event
	MeasuredOn string
	Links      []Link // what collectives carry, by axes of the mesh and level of hardware
}

// Link is what the collectives along some axes of a mesh carry over a level of hardware in a step.
type Link struct {
	Axes    string  `json:"axes"`
	Level   string  `json:"level"`
	Sent    float64 `json:"sent"` // bytes by a rank, on average
	Seconds float64 `json:"seconds"`
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

// opInfo is a row of the table of operations.
type opInfo struct {
	Doc   string `json:"doc"`
	Class string `json:"class"`
	Rule  string `json:"rule,omitempty"`
	Work  string `json:"work"` // multiply, mix, other
}

var classes = map[graph.Class]string{graph.Leaf: "leaf", graph.View: "view", graph.Compute: "compute", graph.Collective: "collective", graph.Relayout: "relayout"}

// assemble collects the data of the page.
func assemble(in *Input) (*document, error) {
	if in == nil || len(in.Stages) == 0 || len(in.Schedules) == 0 {
		return nil, errors.New("explain: Stages and Schedules must not be empty")
	}
	plan, err := lowering.NewPlan(in.Schedules)
	if err != nil {
		return nil, err
	}
	d := &document{Model: clean(in.Model), Strategy: clean(in.Strategy), Ranks: len(in.Schedules), Ops: map[string]opInfo{},
		Facts: []Fact{}, Steps: []step{}, Runs: []run{}, Collectives: []collective{}, Regions: regionNames, Certificate: in.Certificate, Unproved: clean(in.Unproved)}
	for _, f := range in.Facts {
		d.Facts = append(d.Facts, Fact{clean(f.Name), clean(f.Text)})
	}
	d.Title = d.Model
	if in.Certificate != nil {
		d.Text, d.Executed = clean(in.Certificate.String()), in.Certificate.Execution != nil
	}
	d.stages(in.Stages)
	for _, s := range firstOfStages(in.Schedules) {
		d.steps(s)
	}
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

// clean replaces invisible characters, and those that change the direction of text.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.In(r, unicode.C, unicode.Zl, unicode.Zp)) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/krait-ml/krait/internal/terminal"
	"github.com/krait-ml/krait/session/prefix"
	draw "github.com/krait-ml/krait/visualize/svg"
	"github.com/spf13/cobra"
)

// sweepSteps is how often the capacity is halved.
const sweepSteps = 6

// sweepReport is what capacities and policies make of a trace.
type sweepReport struct {
	Trace       string       `json:"trace"`
	Model       prefix.Model `json:"model"`
	InputTokens int64        `json:"input_tokens"`
	Capacities  []int64      `json:"capacities"`
	Policies    []sweepLine  `json:"policies"`
	requests    int
}

// sweepLine has what a policy hits, per capacity.
type sweepLine struct {
	Policy    string    `json:"policy"`
	HitTokens []int64   `json:"hit_tokens"`
	HitRates  []float64 `json:"hit_rates"`
	title     string
}

func (f *cacheFlags) runSweep(c *cobra.Command, path string) error {
	r := &sweepReport{Trace: path, Policies: []sweepLine{{Policy: "blocks32", title: "blocks32"}}}
	for _, alpha := range prefix.Alphas {
		r.Policies = append(r.Policies, sweepLine{Policy: "flop:" + short(alpha), title: "α = " + short(alpha)})
	}
	r.Policies = append(r.Policies, sweepLine{Policy: "tuned", title: "tuned"}, sweepLine{Policy: "reuse", title: "reuse"})
	var names []string
	for _, p := range r.Policies {
		names = append(names, p.Policy)
	}
	most := int64(f.capacity.byteCount)
	if most < 1<<(sweepSteps-1) {
		return fmt.Errorf("--capacity %d is too small: a sweep halves it %d times; give more bytes", most, sweepSteps-1)
	}
	for i := range sweepSteps {
		r.Capacities = append(r.Capacities, most>>(sweepSteps-1-i))
	}
	m, trace, err := f.read(c, path, names)
	if err != nil {
		return err
	}
	r.Model, r.requests = m, len(trace)
	for _, x := range trace {
		r.InputTokens += int64(x.InputLen)
	}
	tell, end := terminal.Progress(c.ErrOrStderr(), "sweep", "requests", false)
	_, err = interruptible(c, "", func() (struct{}, error) { return struct{}{}, r.measure(trace, tell) })
	end()
	if err != nil {
		return err
	}
	if f.out.file != "" {
		if err := write(c, f.out.file, r.chart()); err != nil {
			return err
		}
	}
	table := output{json: f.out.json}
	return table.print(c, r, r.print)
}

// measure replays the trace with each capacity and policy, on all cores.
func (r *sweepReport) measure(trace []prefix.Request, tell func(done, all int)) error {
	var mu sync.Mutex
	done, all := 0, len(r.Policies)*len(r.Capacities)*len(trace)
	served := func(int) {
		mu.Lock()
		defer mu.Unlock()
		if done++; tell != nil {
			tell(done, all)
		}
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var failed error
	for i := range r.Policies {
		line := &r.Policies[i]
		line.HitTokens, line.HitRates = make([]int64, len(r.Capacities)), make([]float64, len(r.Capacities))
		for j, capacity := range r.Capacities {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				x, err := prefix.Simulation{Policy: line.Policy, Model: r.Model, Capacity: capacity, Progress: served}.Run(trace)
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				line.HitTokens[j], line.HitRates[j] = x.HitTokens, float64(x.HitTokens)/float64(r.InputTokens)
			})
		}
	}
	wg.Wait()
	return failed
}

func (r *sweepReport) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %s of input; share that is reused\n\n", visible(r.Trace), count(r.requests, "request"), count(int(r.InputTokens), "token"))
	fmt.Fprintf(w, "%12s", "capacity")
	for _, p := range r.Policies {
		fmt.Fprintf(w, "  %8s", p.title)
	}
	for i, capacity := range r.Capacities {
		fmt.Fprintf(w, "\n%12s", gigabytes(capacity))
		for _, p := range r.Policies {
			fmt.Fprintf(w, "  %7.1f%%", 100*p.HitRates[i])
		}
	}
	fmt.Fprintln(w)
}

// gigabytes writes 1.5 GB.
func gigabytes(n int64) string { return fmt.Sprintf("%.4g GB", float64(n)/1e9) }

// alphaColours go from blue to red, as α grows.
var alphaColours = []string{"#1f5fa8", "#2b8cbe", "#41ab9d", "#78c679", "#e0b000", "#f08c00", "#d95f0e", "#b2182b"}

// chart draws the shares.
func (r *sweepReport) chart() []byte {
	chart := draw.Chart{Title: fmt.Sprintf("%s, %s", filepath.Base(r.Trace), count(r.requests, "request")), X: "capacity", Y: "share of input reused", Percent: true}
	for _, n := range r.Capacities {
		chart.Categories = append(chart.Categories, gigabytes(n))
	}
	for i, p := range r.Policies {
		line := draw.Line{Name: p.title, Colour: "#000000"}
		for j, share := range p.HitRates {
			line.Points = append(line.Points, draw.Point{X: float64(j), Y: share})
		}
		switch p.Policy {
		case "blocks32":
			line.Colour, line.Dashes = "#999999", "2 3"
		case "tuned":
			line.Dashes = "6 3"
		case "reuse":
		default:
			line.Colour = alphaColours[i-1]
		}
		chart.Lines = append(chart.Lines, line)
	}
	return chart.SVG()
}

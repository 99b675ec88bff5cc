package traffic

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/lab/load"
	"github.com/krait-ml/krait/visualize/svg"
)

// Size is a number of equal servers, each on some ranks.
type Size struct {
	Number int `json:"servers"`
	Ranks  int `json:"ranks"`
}

func (s Size) String() string { return fmt.Sprintf("%dxtp%d", s.Number, s.Ranks) }

// ParseSize reads 2xtp4, or tp4 for one server.
func ParseSize(text string) (s Size, err error) {
	number, ranks, many := strings.Cut(text, "x")
	if !many {
		number, ranks = "1", text
	}
	s.Number, err = strconv.Atoi(number)
	digits, tp := strings.CutPrefix(ranks, "tp")
	if s.Ranks, _ = strconv.Atoi(digits); err != nil || !tp || s.Number < 1 || s.Ranks < 1 {
		return s, fmt.Errorf("%q: it must be servers and the ranks of each, as in 2xtp4", text)
	}
	return s, nil
}

// Deployment is the sizes of the servers that decode, and of those that prefill.
type Deployment struct {
	Prefill Size `json:"prefill"` // zero: servers prefill themselves
	Decode  Size `json:"decode"`
}

// ParseDeployment reads 4xtp2, or 2xtp4+4xtp2 with the servers that prefill first.
func ParseDeployment(text string) (d Deployment, err error) {
	prefill, decode, apart := strings.Cut(text, "+")
	if !apart {
		d.Decode, err = ParseSize(strings.TrimSpace(text))
		return d, err
	}
	if d.Prefill, err = ParseSize(strings.TrimSpace(prefill)); err == nil {
		d.Decode, err = ParseSize(strings.TrimSpace(decode))
	}
	return d, err
}

// Ranks returns the ranks of all servers.
func (d Deployment) Ranks() int {
	return d.Prefill.Number*d.Prefill.Ranks + d.Decode.Number*d.Decode.Ranks
}

func (d Deployment) String() string {
	if d.Prefill.Number == 0 {
		return d.Decode.String()
	}
	return d.Prefill.String() + " + " + d.Decode.String()
}

// Deployments returns those of equal servers on a number of ranks: with each power of two as ranks
// of a server, together, and divided among prefill and decode in all ways.
func Deployments(ranks int) (list []Deployment) {
	for each := 1; each <= ranks; each *= 2 {
		n := ranks / each
		if n*each != ranks {
			break
		}
		list = append(list, Deployment{Decode: Size{n, each}})
		for prefill := 1; prefill < n; prefill++ {
			list = append(list, Deployment{Size{prefill, each}, Size{n - prefill, each}})
		}
	}
	return list
}

// Line is a deployment under each load.
type Line struct {
	Deployment
	Name  string    `json:"name"`
	Loads []*Report `json:"loads,omitempty"`
	// PerMillion is the price of a million generated tokens under each load, by that of an hour of a
	// rank.
	PerMillion []float64 `json:"price_per_million_tokens,omitempty"`
	Err        string    `json:"error,omitempty"` // why it runs no load
}

// Sweep simulates deployments under loads. To find the cheapest, of a list that begins with the
// fewest ranks, it leaves out those of more ranks. A deployment that servers returns an error for
// has its text. The price is that of an hour of a rank. Progress counts the requests of all loads.
func Sweep(ctx context.Context, o Options, list []Deployment, find bool, loads []load.Load, price float64, servers func(Size) (Server, error)) ([]Line, error) {
	var lines []Line
	runs, tell := 0, o.Progress
	if tell != nil {
		o.Progress = func(done, all int) { tell(runs*all+done, len(list)*len(loads)*all) }
	}
	for _, d := range list {
		if best := Cheapest(lines); find && best != nil && d.Ranks() > best.Ranks() {
			break
		}
		x := Line{Deployment: d, Name: d.String()}
		var err error
		if o.Decode, err = servers(d.Decode); err == nil {
			if o.Prefill = (Server{}); d.Prefill.Number > 0 {
				o.Prefill, err = servers(d.Prefill)
			}
		}
		if err != nil {
			x.Err = err.Error()
			lines = append(lines, x)
			runs += len(loads)
			continue
		}
		for _, l := range loads {
			o.Load = l
			r, err := Run(ctx, o)
			if err != nil {
				return nil, err
			}
			runs++
			x.Loads = append(x.Loads, r)
			if price > 0 && r.TokensPerSecond > 0 {
				x.PerMillion = append(x.PerMillion, price*float64(d.Ranks())/3600/r.TokensPerSecond*1e6)
			}
		}
		lines = append(lines, x)
	}
	return lines, nil
}

// Attained is the share of requests that must meet the SLO for a deployment to be found.
const Attained = 0.95

// Cheapest returns the line with the fewest ranks whose requests meet the SLO under all loads, of
// equals the one that meets it most often; nil: none does.
func Cheapest(lines []Line) (best *Line) {
	least := func(x *Line) float64 {
		share := 1.0
		for _, r := range x.Loads {
			share = min(share, float64(r.Good)/float64(len(r.Outcomes)))
		}
		return share
	}
	for i := range lines {
		x := &lines[i]
		if x.Err != "" || least(x) < Attained {
			continue
		}
		if best == nil || x.Ranks() < best.Ranks() || x.Ranks() == best.Ranks() && least(x) > least(best) {
			best = x
		}
	}
	return best
}

// foremost reports whether a load is on the Pareto front of lines with one load.
func foremost(r *Report, lines []Line) bool {
	return !slices.ContainsFunc(lines, func(x Line) bool {
		if len(x.Loads) != 1 || x.Loads[0].PerUser == nil {
			return false
		}
		o := x.Loads[0]
		return *o.PerUser >= *r.PerUser && o.PerRank >= r.PerRank && (*o.PerUser > *r.PerUser || o.PerRank > r.PerRank)
	})
}

var colours = []string{"#1f5fa8", "#b5482a", "#3a7d44", "#7a4fa3", "#a8801f", "#2a8f9e", "#a33a6b", "#5f6b2a"}

// SVG draws the throughput per rank of each line over its tokens per second and user. Of lines with
// one load it names those that no other exceeds in both.
func SVG(title string, lines []Line) []byte {
	c := svg.Chart{Title: title, X: "tokens per second per user", Y: "tokens per second per rank"}
	for i, x := range lines {
		if x.Err != "" {
			continue
		}
		line := svg.Line{Name: x.Name, Colour: colours[i%len(colours)]}
		if i >= len(colours) {
			line.Dashes = "4 3"
		}
		for _, r := range x.Loads {
			if r.PerUser == nil {
				continue
			}
			p := svg.Point{X: *r.PerUser, Y: r.PerRank}
			switch {
			case len(lines) == 1:
				p.Name = r.Name()
			case len(x.Loads) == 1 && foremost(r, lines): // a point alone has no line
				p.Name = x.Name
			}
			line.Points = append(line.Points, p)
		}
		c.Lines = append(c.Lines, line)
	}
	return c.SVG()
}

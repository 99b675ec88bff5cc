package cost

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/versions"
)

// Text writes a profile as [Parse] reads it.
func (p *Profile) Text() []byte {
	w := &writer{}
	w.object("", func() {
		w.value("version", versions.Profile.Version)
		w.value("about", p.About)
		if p.Shared {
			w.value("shared", true)
		}
		if p.Multiprocessors.Value > 0 {
			w.figure("multiprocessors", p.Multiprocessors)
		}
		w.object("memory", func() {
			w.figure("capacity", p.Memory.Capacity)
			w.figure("reserve", p.Memory.Reserve)
			w.figure("bandwidth", p.Memory.Bandwidth)
			w.figure("achieved", p.Memory.Achieved)
		})
		w.object("compute", func() {
			for _, name := range p.Formats() {
				w.object(name, func() {
					w.figure("peak", p.Compute[name].Peak)
					w.figure("achieved", p.Compute[name].Achieved)
				})
			}
		})
		w.object("overhead", func() {
			w.figure("launch", p.Overhead.Launch)
			w.figure("graph_launch", p.Overhead.GraphLaunch)
			w.figure("step", p.Overhead.Step)
		})
		w.object("link", func() { w.link(&p.Link, algorithmNames) })
		if n := p.Network; n != nil {
			w.object("network", func() {
				w.figure("ranks", n.Ranks)
				w.figure("rails", n.Rails)
				w.link(&n.Link, networkNames)
			})
		}
		if len(p.Operations) > 0 {
			w.object("operations", func() {
				for _, name := range slices.Sorted(maps.Keys(p.Operations)) {
					w.object(name, func() { w.measured(p.Operations[name]) })
				}
			})
		}
	})
	return []byte(w.String() + "\n")
}

// writer writes JSON with a figure on each line.
type writer struct {
	strings.Builder
	depth int
	begun bool // the object has a member
}

func (w *writer) key(key string) {
	if w.depth == 0 {
		return
	}
	if w.begun {
		w.WriteString(",")
	}
	w.begun = true
	fmt.Fprintf(w, "\n%s%s: ", strings.Repeat("  ", w.depth), quoted(key))
}

func (w *writer) object(key string, members func()) {
	w.key(key)
	w.WriteString("{")
	w.depth++
	w.begun = false
	members()
	w.depth--
	w.begun = true
	w.WriteString("\n" + strings.Repeat("  ", w.depth) + "}")
}

func (w *writer) value(key string, v any) {
	w.key(key)
	w.WriteString(quoted(v))
}

func (w *writer) figure(key string, f Figure) {
	kind := "source"
	if f.Assumed {
		kind = "assumption"
	}
	w.key(key)
	fmt.Fprintf(w, `{"value": %g, "%s": %s}`, f.Value, kind, quoted(f.Source))
}

func (w *writer) link(l *Link, names []string) {
	w.value("about", l.About)
	if l.Straggle.Source != "" {
		w.figure("straggle", l.Straggle)
	}
	if l.Peers.Source != "" {
		w.figure("peers", l.Peers)
	}
	for _, name := range names {
		w.object(name, func() {
			for _, line := range l.Unavailable {
				if why, ok := strings.CutPrefix(line, name+": "); ok {
					w.value("unavailable", why)
				}
			}
			for _, a := range l.Algorithms {
				if a.Name == name {
					w.object(a.Protocol, func() {
						w.figure("base", a.Base)
						w.figure("step", a.Step)
						w.figure("bandwidth", a.Bandwidth)
					})
				}
			}
		})
	}
}

func (w *writer) measured(m Measured) {
	w.value("source", m.Source)
	w.object("ranks", func() {
		for i, p := range m.Points {
			if i > 0 && m.Points[i-1].Ranks == p.Ranks {
				continue
			}
			var list []string
			for _, q := range m.Points {
				if q.Ranks == p.Ranks {
					list = append(list, fmt.Sprintf(`"%d": %.4g`, q.Rows, q.Rate))
				}
			}
			w.key(fmt.Sprint(p.Ranks))
			w.WriteString("{" + strings.Join(list, ", ") + "}")
		}
	})
}

// quoted is a value as JSON.
func quoted(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("BUG: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

package cost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/ordered"
	"github.com/krait-ml/krait/internal/versions"
)

// Parse reads the text of a profile; name is what errors call it. A key that is missing,
// unknown or there twice, and a number that is not possible, are errors that name it.
func Parse(name string, text []byte) (*Profile, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	tree, err := object(d)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is something after the profile")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: a profile is an object of JSON: %w", name, err)
	}
	r := &reader{name: name}
	if err := version(tree["version"]); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := r.profile(&section{reader: r, fields: tree})
	p.Name = name
	return p, errors.Join(r.errs...)
}

// version checks the version of the format; a profile without one is of version 1.
func version(v any) error {
	if v == nil {
		return nil
	}
	n, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil {
		return fmt.Errorf("version: must be a number, found %v", v)
	}
	return versions.Profile.Accept(n)
}

// object reads one whose keys differ.
func object(d *json.Decoder) (map[string]any, error) {
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('{') {
		return nil, fmt.Errorf("found %v", t)
	}
	return members(d)
}

func members(d *json.Decoder) (map[string]any, error) {
	out := map[string]any{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		k := key.(string)
		if _, twice := out[k]; twice {
			return nil, fmt.Errorf("the key %q is there twice", k)
		}
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch t {
		case json.Delim('{'):
			out[k], err = members(d)
		case json.Delim('['):
			err = fmt.Errorf("%s is a list, and profiles have none", k)
		default:
			out[k] = t
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return out, err
}

// reader collects what is wrong.
type reader struct {
	name string
	errs []error
}

func (r *reader) fail(path, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s: %s", r.name, path, fmt.Sprintf(format, args...)))
}

// section is an object of the profile.
type section struct {
	*reader
	path   string
	fields map[string]any
	known  []string // keys that were asked for
}

func (s *section) at(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

func (s *section) take(key string) (any, bool) {
	s.known = append(s.known, key)
	v, ok := s.fields[key]
	return v, ok
}

// end rejects the keys that were not read.
func (s *section) end() {
	for _, key := range slices.Sorted(maps.Keys(s.fields)) {
		if !slices.Contains(s.known, key) {
			s.fail(s.at(key), "unknown key; it must be one of %s", strings.Join(s.known, ", "))
		}
	}
}

// section takes an object; what is missing in one that is not there is not told of.
func (s *section) section(key string, read func(*section)) {
	v, ok := s.take(key)
	fields, is := v.(map[string]any)
	switch {
	case !ok:
		s.fail(s.at(key), "missing")
	case !is:
		s.fail(s.at(key), "must be an object, found %v", v)
	default:
		sub := &section{reader: s.reader, path: s.at(key), fields: fields}
		read(sub)
		sub.end()
	}
}

// each takes an object of objects, whose keys the profile chooses.
func (s *section) each(key string, read func(name string, s *section)) {
	s.section(key, func(s *section) {
		for _, name := range slices.Sorted(maps.Keys(s.fields)) {
			s.section(name, func(s *section) { read(name, s) })
		}
	})
}

func (s *section) text(key string) string {
	v, ok := s.take(key)
	text, is := v.(string)
	switch {
	case !ok:
		s.fail(s.at(key), "missing")
	case !is || strings.TrimSpace(text) == "":
		s.fail(s.at(key), "must be a string, found %v", v)
	}
	return text
}

// limits are those of a figure.
type limits struct {
	unit     string
	positive bool    // and not 0
	whole    bool    // without a fraction
	most     float64 // 0: any number
}

var (
	aRate     = limits{unit: "per second", positive: true}
	aNumber   = limits{unit: "pieces", positive: true}
	aTime     = limits{unit: "seconds"}
	aSize     = limits{unit: "bytes", positive: true, most: 1 << 60}
	aReserve  = limits{unit: "bytes", most: 1 << 60}
	aFraction = limits{unit: "a fraction", positive: true, most: 1}
	aShare    = limits{unit: "seconds per second", most: 1}
	aCount    = limits{unit: "pieces of a node", positive: true, whole: true, most: graph.MaxMesh}
)

// figure takes {"value": 2e12, "source": "data sheet"}, or an assumption instead of a source.
func (s *section) figure(key string, l limits) (f Figure) {
	if _, ok := s.fields[key]; !ok {
		s.known = append(s.known, key)
		s.fail(s.at(key), `missing; it must be {"value": NUMBER, "source": TEXT} in %s, or "assumption" for a source`, l.unit)
		return f
	}
	s.section(key, func(s *section) {
		f.Value = s.number("value", l)
		_, assumed := s.fields["assumption"]
		_, sourced := s.fields["source"]
		switch {
		case assumed && sourced:
			s.known = append(s.known, "source", "assumption")
			s.fail(s.path, "it has a source and an assumption; a figure is either")
		case assumed:
			f.Source, f.Assumed = s.text("assumption"), true
		default:
			f.Source = s.text("source")
			s.known = append(s.known, "assumption")
		}
	})
	return f
}

func (s *section) number(key string, l limits) float64 {
	v, ok := s.take(key)
	if !ok {
		s.fail(s.at(key), "missing")
		return 0
	}
	n, is := v.(json.Number)
	if !is {
		s.fail(s.at(key), "must be a number, found %v", v)
		return 0
	}
	return s.checked(key, n.String(), l)
}

func (s *section) checked(key, text string, l limits) float64 {
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsInf(x, 0):
		s.fail(s.at(key), "%s is more than a number can be", text)
	case x < 0:
		s.fail(s.at(key), "%s is negative", text)
	case x == 0 && l.positive:
		s.fail(s.at(key), "is 0; it must be above 0")
	case l.most > 0 && x > l.most:
		s.fail(s.at(key), "%s is more than %g, and it is %s", text, l.most, l.unit)
	case l.whole && x != math.Trunc(x):
		s.fail(s.at(key), "%s is not a whole number", text)
	}
	return x
}

// formats are those in which products may be computed.
var formats = []string{"f32", "tf32", "bf16", "f16"}

func (r *reader) profile(s *section) *Profile {
	s.take("version") // checked before
	if _, ok := s.fields["node"]; ok {
		return r.cluster(s)
	}
	p := &Profile{About: s.text("about"), Compute: map[string]Compute{}, Operations: map[string]Measured{}}
	if v, ok := s.take("shared"); ok {
		if p.Shared, ok = v.(bool); !ok {
			s.fail("shared", "must be true or false, found %v", v)
		}
	}
	if _, ok := s.fields["multiprocessors"]; ok {
		p.Multiprocessors = s.figure("multiprocessors", aNumber)
	}
	s.known = append(s.known, "multiprocessors")
	s.section("memory", func(s *section) {
		p.Memory = Memory{s.figure("capacity", aSize), s.figure("reserve", aReserve), s.figure("bandwidth", aRate), s.figure("achieved", aFraction)}
	})
	if p.Memory.Reserve.Value > p.Memory.Capacity.Value {
		s.fail("memory.reserve", "%.0f bytes of %.0f", p.Memory.Reserve.Value, p.Memory.Capacity.Value)
	}
	s.section("compute", func(s *section) {
		for i, f := range formats {
			if _, there := s.fields[f]; i > 0 && !there {
				s.known = append(s.known, f)
				continue
			}
			s.section(f, func(s *section) { p.Compute[f] = Compute{s.figure("peak", aRate), s.figure("achieved", aFraction)} })
		}
	})
	s.section("overhead", func(s *section) {
		p.Overhead = Overhead{s.figure("launch", aTime), s.figure("graph_launch", aTime), s.figure("step", aTime)}
	})
	s.section("link", func(s *section) {
		p.Link = s.link(algorithmNames)
		if _, ok := s.fields["straggle"]; ok {
			p.Link.Straggle = s.figure("straggle", aShare)
		}
		if _, ok := s.fields["peers"]; ok {
			p.Link.Peers = s.figure("peers", aSize)
		}
		s.known = append(s.known, "straggle", "peers")
	})
	if _, ok := s.fields["network"]; ok {
		s.section("network", func(s *section) { p.Network = s.network() })
	}
	if _, ok := s.fields["operations"]; ok {
		s.each("operations", func(name string, s *section) { p.Operations[name] = s.measured(name) })
	}
	s.known = append(s.known, "network", "operations")
	s.end()
	return p
}

// cluster reads a profile of nodes that another profile describes, by its name.
func (r *reader) cluster(s *section) *Profile {
	p := &Profile{}
	about, name := s.text("about"), s.text("node")
	if slices.Contains(Names(), name) {
		p = builtIn(name)
	}
	if p.Name == "" || p.Network != nil {
		s.fail("node", "%q is no profile of one node that comes with krait", name)
	}
	p.About = about
	s.section("network", func(s *section) { p.Network = s.network() })
	s.end()
	return p
}

// network reads the link between nodes.
func (s *section) network() *Network {
	n := &Network{Ranks: s.figure("ranks", aCount), Rails: s.figure("rails", aCount)}
	n.Link = s.link(networkNames)
	return n
}

// link reads the algorithms, each with its protocols.
func (s *section) link(names []string) Link {
	l := Link{About: s.text("about")}
	for _, name := range names {
		if sub, _ := s.fields[name].(map[string]any); sub["unavailable"] != nil {
			s.section(name, func(s *section) { l.Unavailable = append(l.Unavailable, name+": "+s.text("unavailable")) })
			continue
		}
		s.each(name, func(protocol string, s *section) {
			l.Algorithms = append(l.Algorithms, Algorithm{name, protocol, s.figure("base", aTime), s.figure("step", aTime), s.figure("bandwidth", aRate)})
		})
	}
	if len(l.Algorithms) == 0 {
		s.fail(s.path, "has no algorithm for collectives")
	}
	return l
}

// measured reads an operation's rates: by ranks, and of these by rows.
func (s *section) measured(name string) Measured {
	op, weights, _ := strings.Cut(strings.TrimSuffix(name, Short), "/")
	if _, ok := graph.Lookup(op); !ok {
		s.fail(s.path, "%v", graph.Unknown(op))
	}
	if _, ok := graph.ParseDType(weights); weights != "" && !ok {
		s.fail(s.path, "unknown number format %q", weights)
	}
	m := Measured{Source: s.text("source")}
	s.section("ranks", func(s *section) {
		for ranks, at := range s.counted() {
			s.section(at, func(s *section) {
				for rows, at := range s.counted() {
					m.Points = append(m.Points, Point{ranks, rows, s.number(at, aRate)})
				}
			})
		}
	})
	ordered.Sort(m.Points, func(a, b Point) int { return cmp.Or(cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Rows, b.Rows)) })
	if len(m.Points) == 0 {
		s.fail(s.path, "nothing was measured")
	}
	return m
}

// counted are the keys of a section that are whole numbers above 0.
func (s *section) counted() map[int]string {
	out := map[int]string{}
	for key := range s.fields {
		n, err := strconv.Atoi(key)
		if err != nil || n < 1 || strconv.Itoa(n) != key {
			s.known = append(s.known, key)
			s.fail(s.at(key), "the key is a number above 0")
			continue
		}
		out[n] = key
	}
	return out
}

package cost

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/files"
)

// Profile describes hardware: a rank's device, the link between ranks, and the network between
// nodes. Units are bytes, seconds, operations and bytes per second.
type Profile struct {
	Name, About string
	// Shared says that the ranks are on one device, which they divide evenly: its rates,
	// its bandwidth and its memory.
	Shared bool
	// Multiprocessors is how many the device has that work at the same time, each with the same
	// share of its rates; 0: unknown.
	Multiprocessors Figure
	Memory          Memory
	Compute         map[string]Compute // by number format of products: f32, tf32, bf16, f16
	Overhead        Overhead
	Link            Link
	Network         *Network // nil: there is one node
	// Operations has what was measured of single operations: "silu", "matmul/bf16" for one whose
	// weights are in bf16, or "matmul/bf16/short" ([Short]). Those without go by Compute and Memory.
	Operations map[string]Measured
}

// Figure is a number of a profile.
type Figure struct {
	Value  float64
	Source string // where it is from, or why it is assumed
	// Assumed figures are neither measured nor in a data sheet.
	Assumed bool
}

// Memory is that of a device.
type Memory struct {
	Capacity  Figure // bytes that programs can have
	Reserve   Figure // bytes of it that are the runtime's: its context, its libraries
	Bandwidth Figure // peak
	Achieved  Figure // the fraction of the peak that kernels reach
}

// Compute is what products of a number format reach.
type Compute struct {
	Peak     Figure
	Achieved Figure // the fraction of the peak that kernels reach
}

// Overhead is what things cost whatever their size.
type Overhead struct {
	Launch      Figure // a kernel that is launched by itself
	GraphLaunch Figure // one in a captured graph
	Step        Figure // a batch: what the host does between two
}

// Measured is what an operation reached: its rates at some numbers of rows.
type Measured struct {
	Source string
	Points []Point // by ranks, and then rows, in ascending order
}

// Point is a measurement of an operation, which includes what memory took.
type Point struct {
	Ranks int     // that ran at the same time on a device that they share; else 1
	Rows  int     // of the activation
	Rate  float64 // operations per second, overhead left out; of a rank
}

//go:embed profiles/*.json
var profileFiles embed.FS

// Names lists the profiles that come with the program.
func Names() []string {
	list, err := fs.ReadDir(profileFiles, "profiles")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// Local is the name of the profile of this machine, which is measured.
const Local = "local"

// LocalFile is where the profile of this machine is kept.
func LocalFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for the profile %s: %w", Local, err)
	}
	return filepath.Join(dir, "krait", Local+".json"), nil
}

// Find finds a profile by its name, or reads it from a file.
func Find(name string) (*Profile, error) {
	if slices.Contains(Names(), name) {
		return builtIn(name), nil
	}
	file := name
	if name == Local {
		var err error
		if file, err = LocalFile(); err != nil {
			return nil, err
		}
	}
	text, err := files.ReadPipe(file, files.Config)
	switch {
	case os.IsNotExist(err) && name == Local:
		return nil, fmt.Errorf("there is no profile of this machine yet; krait calibrate measures it and writes %s", file)
	case os.IsNotExist(err):
		return nil, fmt.Errorf("%q is neither a hardware profile nor a file; profiles are %s, and %s after krait calibrate", name, strings.Join(Names(), ", "), Local)
	case err != nil:
		return nil, err
	}
	return Parse(file, text)
}

// builtIn is a profile that comes with the program.
func builtIn(name string) *Profile {
	text, err := profileFiles.ReadFile("profiles/" + name + ".json")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	p, err := Parse(name, text)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return p
}

// Only is the profile with some of the algorithms of its link: those that a library has.
func (p *Profile) Only(algorithms ...string) *Profile {
	q := *p
	q.Link.Algorithms = slices.DeleteFunc(slices.Clone(p.Link.Algorithms), func(a Algorithm) bool { return !slices.Contains(algorithms, a.Name) })
	return &q
}

// Usable is the memory of each rank in bytes; ranks that share a device divide it.
func (p *Profile) Usable(ranks int) int64 {
	n := p.Memory.Capacity.Value - p.Memory.Reserve.Value
	if p.Shared {
		n /= float64(ranks)
	}
	return int64(max(0, n))
}

// Formats lists those that products may be computed in.
func (p *Profile) Formats() []string { return slices.Sorted(maps.Keys(p.Compute)) }

// format is what products of a format reach; empty is f32.
func (p *Profile) format(name string) (Compute, error) {
	c, ok := p.Compute[cmp.Or(name, "f32")]
	if !ok {
		return c, fmt.Errorf("profile %s has no rate for products in %s; it has %s", p.Name, name, strings.Join(p.Formats(), ", "))
	}
	return c, nil
}

// rate is that of an operation's measured points for some rows on some ranks, by what
// lies between two of them; 0 where nothing was measured.
func (m *Measured) rate(ranks int, rows float64) float64 {
	on := 0
	for _, p := range m.Points {
		if p.Ranks <= ranks {
			on = max(on, p.Ranks)
		}
	}
	var before, after *Point
	for i := range m.Points {
		p := &m.Points[i]
		switch {
		case p.Ranks != on:
		case float64(p.Rows) <= rows:
			before = p
		case after == nil:
			after = p
		}
	}
	if before == nil && after == nil {
		return 0
	}
	before, after = cmp.Or(before, after), cmp.Or(after, before)
	return between(before, after, rows) * float64(on) / float64(ranks)
}

package group

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/program"
	"github.com/krait-ml/krait/lowering"
)

// Processes must run the same model in the same way. Before the first step each reports its
// properties to rank 0, and of weights a fingerprint of its shard, which rank 0 compares with its
// own checkpoint.

// property is a thing that all processes must have alike.
type property struct {
	Name  string // such as "schedule"
	Value string // a fingerprint where it is long
	Show  bool   // Value is readable
}

// report is what a process tells rank 0.
type report struct {
	Host       string
	Properties []property
}

// answer is what rank 0 tells all.
type answer struct {
	Error string
	Hosts []string // by rank
}

// disagreement is the error of all processes where they do not run the same.
type disagreement string

func (d disagreement) Error() string { return string(d) }

// agree compares the properties of the processes of a group, and returns their hosts, by rank.
func agree(g *comm.Group, d exec.Device, schedules []*lowering.Schedule, o *exec.Setup) ([]string, error) {
	own := report{Host: host(), Properties: []property{
		{"version", version(), true},
		{"options", fmt.Sprintf("%d slots, %d trials, a context of %d and pages of %d tokens", o.Slots-o.Trials, o.Trials, o.Context, o.PageTokens), true},
		{"device", describe(d), true},
		{"schedule", fingerprint(schedules), false},
	}}
	w := weights{tensor: o.Tensor, replicated: map[string]uint32{}}
	var a answer
	if g.Rank() == 0 {
		if err := compare(g, schedules, &own, &w, &a); err != nil {
			return nil, err
		}
	} else {
		text, err := w.fingerprint(schedules[g.Rank()])
		if err != nil {
			return nil, err
		}
		own.Properties = append(own.Properties, property{"weights", text, false})
		send(g, 0, own)
		if err := receive(g, 0, &a); err != nil {
			return nil, err
		}
	}
	if a.Error != "" {
		return nil, disagreement(a.Error)
	}
	return a.Hosts, nil
}

// compare compares the reports of all ranks on rank 0, and answers them.
func compare(g *comm.Group, schedules []*lowering.Schedule, own *report, w *weights, a *answer) error {
	a.Hosts = make([]string, g.Ranks())
	a.Hosts[0] = own.Host
	var list differences
	for r := 1; r < g.Ranks(); r++ {
		var other report
		if err := receive(g, r, &other); err != nil {
			return err
		}
		a.Hosts[r] = other.Host
		text, err := w.fingerprint(schedules[r])
		if err != nil {
			return err
		}
		list.add(r, append(slices.Clone(own.Properties), property{"weights", text, false}), other.Properties)
	}
	a.Error = list.String()
	for r := 1; r < g.Ranks(); r++ {
		send(g, r, a)
	}
	return nil
}

// differences are the properties in which ranks differ from rank 0.
type differences []difference

type difference struct {
	name   string
	ranks  []string
	values string // of the first of them, and of rank 0
}

func (d *differences) add(rank int, own, other []property) {
	for _, p := range own {
		i := slices.IndexFunc(other, func(x property) bool { return x.Name == p.Name })
		if i >= 0 && other[i].Value == p.Value {
			continue
		}
		k := slices.IndexFunc(*d, func(x difference) bool { return x.name == p.Name })
		if k < 0 {
			k = len(*d)
			x := difference{name: p.Name}
			if p.Show && i >= 0 {
				x.values = fmt.Sprintf(" (%s, and rank 0 has %s)", other[i].Value, p.Value)
			}
			*d = append(*d, x)
		}
		(*d)[k].ranks = append((*d)[k].ranks, fmt.Sprint(rank))
	}
}

// String describes the differences; empty: none.
func (d differences) String() string {
	var list []string
	for _, x := range d {
		who := "ranks " + strings.Join(x.ranks, ", ") + " differ"
		if len(x.ranks) == 1 {
			who = "rank " + x.ranks[0] + " differs"
		}
		list = append(list, fmt.Sprintf("%s from rank 0 in %s%s", who, x.name, x.values))
	}
	if len(list) == 0 {
		return ""
	}
	return "the processes do not run the same: " + strings.Join(list, "; ")
}

func send(g *comm.Group, to int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	g.Send(to, text)
}

func receive(g *comm.Group, from int, v any) error {
	text, err := g.Receive(from, false)
	if err == nil && json.Unmarshal(text, v) != nil {
		err = fmt.Errorf("rank %d: %w", from, errMessage)
	}
	return err
}

// host identifies this host, also where it has no name.
func host() string {
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + " " + strings.TrimSpace(string(boot))
}

// version is the version of the program, from its build information.
func version() string {
	commit, _ := program.Revision()
	return strings.Join([]string{"krait", program.Version(), commit, runtime.Version(), runtime.GOARCH}, " ")
}

// describe names a device.
func describe(d exec.Device) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// fingerprint is the SHA-256 of the schedules of all ranks.
func fingerprint(schedules []*lowering.Schedule) string {
	sum := sha256.New()
	for _, s := range schedules {
		io.WriteString(sum, s.String())
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// weights computes fingerprints of ranks' weights.
type weights struct {
	tensor     func(string) (graph.Array, error)
	replicated map[string]uint32 // checksums of parameters that all ranks have whole
}

// fingerprint is that of a rank's weights.
func (w *weights) fingerprint(s *lowering.Schedule) (string, error) {
	sum := sha256.New()
	err := files.Guard(func() error {
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != lowering.Param {
				continue
			}
			check, ok := w.replicated[b.Name]
			if !ok {
				share, ranks, at := s.Share(b.Type)
				a, err := b.Storage.Load(b.Name, share, ranks, at, w.tensor)
				if err != nil {
					return fmt.Errorf("parameter %s: %w", b.Name, err)
				}
				check = crc32.Checksum(a.Data, crc32.MakeTable(crc32.Castagnoli))
			}
			if b.Type.Layout.Kind == graph.Replicated {
				w.replicated[b.Name] = check
			}
			fmt.Fprintln(sum, b.Name, b.Type, check)
		}
		return nil
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

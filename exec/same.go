package exec

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/lowering"
)

// Processes that run a model together must have the same of it. Before the first step
// each tells rank 0 what it has; of weights, what it reads of them, which rank 0 looks up in its
// own checkpoint.

// trait is something that all have alike.
type trait struct {
	Name string // in words: "schedule"
	Text string // what the process has; of what is long, a fingerprint
	Show bool   // Text says something to people
}

// card is what a process says of itself.
type card struct {
	Host   string
	Traits []trait
}

// disagreement is the error that all processes have where they do not run the same.
type disagreement string

func (d disagreement) Error() string { return string(d) }

// verdict is what rank 0 says to all.
type verdict struct {
	Error string
	Hosts []string // by rank
}

// agree compares what the processes of a group have, and returns the hosts that they are
// on, by rank.
func (e *Engine) agree(o *Options, tensor func(string) (graph.Array, error)) ([]string, error) {
	mine := card{Host: host(), Traits: []trait{
		{"version", version(), true},
		{"options", fmt.Sprintf("%d slots, a context of %d and pages of %d tokens", o.Slots, o.Context, e.pages.tokens), true},
		{"device", describe(o.Device), true},
		{"schedule", scheduleOf(e.schedules), false},
	}}
	weights := weighing{tensor: tensor, whole: map[string]uint32{}}
	if e.group.Rank() > 0 {
		text, err := weights.of(e.schedules[e.group.Rank()])
		if err != nil {
			return nil, err
		}
		mine.Traits = append(mine.Traits, trait{"weights", text, false})
		send(e.group, 0, mine)
		var v verdict
		if err := receive(e.group, 0, &v); err != nil {
			return nil, err
		}
		if v.Error != "" {
			return nil, disagreement(v.Error)
		}
		return v.Hosts, nil
	}
	return e.judge(&mine, &weights)
}

// judge is what rank 0 does: it compares, and tells the others.
func (e *Engine) judge(mine *card, weights *weighing) ([]string, error) {
	v := verdict{Hosts: make([]string, e.group.Ranks())}
	v.Hosts[0] = mine.Host
	var differ differences
	for r := 1; r < e.group.Ranks(); r++ {
		var c card
		if err := receive(e.group, r, &c); err != nil {
			return nil, err
		}
		v.Hosts[r] = c.Host
		text, err := weights.of(e.schedules[r])
		if err != nil {
			return nil, err
		}
		differ.add(r, append(slices.Clone(mine.Traits), trait{"weights", text, false}), c.Traits)
	}
	v.Error = differ.String()
	for r := 1; r < e.group.Ranks(); r++ {
		send(e.group, r, v)
	}
	if v.Error != "" {
		return nil, disagreement(v.Error)
	}
	return v.Hosts, nil
}

// differences are the traits in which ranks are not like rank 0.
type differences []difference

type difference struct {
	name  string
	ranks []int
	text  string // what the first of them has, and rank 0
}

func (d *differences) add(rank int, mine, theirs []trait) {
	for _, t := range mine {
		i := slices.IndexFunc(theirs, func(x trait) bool { return x.Name == t.Name })
		if i >= 0 && theirs[i].Text == t.Text {
			continue
		}
		k := slices.IndexFunc(*d, func(x difference) bool { return x.name == t.Name })
		if k < 0 {
			k = len(*d)
			x := difference{name: t.Name}
			if t.Show && i >= 0 {
				x.text = fmt.Sprintf(" (%s, and rank 0 has %s)", theirs[i].Text, t.Text)
			}
			*d = append(*d, x)
		}
		(*d)[k].ranks = append((*d)[k].ranks, rank)
	}
}

// String says who differs in what; nothing, where nobody does.
func (d differences) String() string {
	var list []string
	for _, x := range d {
		var ranks []string
		for _, r := range x.ranks {
			ranks = append(ranks, fmt.Sprint(r))
		}
		who := "ranks " + strings.Join(ranks, ", ") + " differ"
		if len(ranks) == 1 {
			who = "rank " + ranks[0] + " differs"
		}
		list = append(list, fmt.Sprintf("%s from rank 0 in %s%s", who, x.name, x.text))
	}
	if len(list) == 0 {
		return ""
	}
	return "the processes do not run the same: " + strings.Join(list, "; ")
}

// send and receive carry what is compared.
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
		err = fmt.Errorf("rank %d: %w", from, errSentence)
	}
	return err
}

// host names the machine that the process is on.
func host() string {
	name, _ := os.Hostname() // without a name, the boot tells it
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + " " + strings.TrimSpace(string(boot))
}

// version is that of the program, as its build says.
func version() string {
	out := []string{"krait"}
	if info, ok := debug.ReadBuildInfo(); ok {
		out = append(out, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				out = append(out, s.Value)
			}
		}
	}
	return strings.Join(append(out, runtime.Version(), runtime.GOARCH), " ")
}

// describe says what computes, where the device does.
func describe(d Device) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// scheduleOf is a fingerprint of the schedules of all ranks.
func scheduleOf(list []*lowering.Schedule) string {
	sum := sha256.New()
	for _, s := range list {
		io.WriteString(sum, s.String())
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// weighing makes fingerprints of what ranks have of the weights.
type weighing struct {
	tensor func(string) (graph.Array, error)
	whole  map[string]uint32 // of what all ranks have whole
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// of is a fingerprint of a rank's weights.
func (w *weighing) of(s *lowering.Schedule) (string, error) {
	sum := sha256.New()
	err := files.Guard(func() error {
		for i := range s.Buffers {
			b := &s.Buffers[i]
			if b.Space != lowering.Param {
				continue
			}
			check, ok := w.whole[b.Name]
			if !ok {
				a, err := b.Storage.Load(b.Name, b.Type, s.Ranks, s.Rank, w.tensor)
				if err != nil {
					return fmt.Errorf("parameter %s: %w", b.Name, err)
				}
				check = crc32.Checksum(a.Data, castagnoli)
			}
			if b.Type.Layout.Kind == graph.Replicated {
				w.whole[b.Name] = check
			}
			fmt.Fprintln(sum, b.Name, b.Type, check)
		}
		return nil
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

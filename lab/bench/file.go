package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/program"
)

// File is the results of a measurement and its environment.
type File struct {
	Environment  Environment    `json:"environment"`
	Results      []Result       `json:"results,omitempty"`
	Kernels      []Kernel       `json:"kernels,omitempty"`
	Pairs        []Pair         `json:"pairs,omitempty"`
	Traces       []TraceResult  `json:"traces,omitempty"`
	Metered      []*MeterResult `json:"metered,omitempty"` // counted on the simulated GPU, and modelled
	Ops          []*OpRun       `json:"operations,omitempty"`
	Speculations []Speculation  `json:"speculations,omitempty"`
}

// Environment describes the machine, the program and the time of a measurement.
type Environment struct {
	Date      string            `json:"date"`
	Commit    string            `json:"commit,omitempty"`
	GPU       string            `json:"gpu,omitempty"`
	Libraries map[string]string `json:"libraries,omitempty"`
	Machine   string            `json:"machine,omitempty"`
	Bandwidth float64           `json:"bytes_per_second,omitempty"` // of memory, measured
	Rate      float64           `json:"flops_per_second,omitempty"` // of the processors, measured
	Threads   int               `json:"threads,omitempty"`          // of these two measurements
	ISA       string            `json:"isa,omitempty"`              // of their loops
}

// Here returns the environment of this program on this machine; d is nil on the CPU.
func Here(d driver.Driver) Environment {
	e := Environment{
		Date: time.Now().UTC().Format(time.DateOnly), Commit: Revision(), Libraries: map[string]string{"Go": runtime.Version()},
		Machine: fmt.Sprintf("%s/%s, %d processors%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor()),
	}
	if d == nil {
		return e
	}
	if list, err := d.Devices(); err == nil && len(list) > 0 {
		e.GPU = fmt.Sprintf("%d × %s, sm_%d%d, %s, %d SMs", len(list), list[0].Name, list[0].Capability[0], list[0].Capability[1], driver.Bytes(list[0].Memory), list[0].SMs)
	}
	for _, v := range d.Versions() {
		if e.Libraries[v.Name] = v.Version; v.Missing != nil {
			e.Libraries[v.Name] = "missing"
		}
	}
	return e
}

// Measured stores a roofline.
func (e *Environment) Measured(f *Roofline) {
	e.Bandwidth, e.Rate, e.Threads, e.ISA = f.Bytes, f.FLOPs, f.Threads, f.ISA
}

// processor returns the processor's name after a comma, or "" if it is unknown.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // other systems have none
	for line := range strings.Lines(string(text)) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return ", " + strings.TrimSpace(name)
		}
	}
	return ""
}

// Commit is the revision of the program, set by build scripts. Empty: Go's build information.
var Commit string

// Revision returns the program's commit, with a mark if files were modified, or "" if unknown.
func Revision() string {
	if Commit != "" {
		return Commit
	}
	commit, modified := program.Revision()
	if modified {
		commit += ", changed"
	}
	return commit
}

// Save writes the file.
func (f *File) Save(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(path, append(text, '\n'))
}

// Append adds the file to one of lines (JSON Lines), which others may append to as well.
func (f *File) Append(path string) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	w, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return cmp.Or(err, w.Close())
}

// Read reads and joins files, of which each has one value of JSON or a line per measurement. The
// environment is that of the first with a GPU, with the libraries of all.
func Read(paths []string) (*File, error) {
	if len(paths) == 0 {
		return nil, errors.New("no file given")
	}
	out := &File{Environment: Environment{Libraries: map[string]string{}}}
	for _, path := range paths {
		text, err := files.Read(path, files.Graph)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(text)); ; {
			var f File
			if err := d.Decode(&f); err == io.EOF {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: not a result of krait bench: %w", path, err)
			}
			out.Add(&f)
		}
	}
	return out, nil
}

// Add joins the results of g to those of f.
func (f *File) Add(g *File) {
	f.Results, f.Kernels = append(f.Results, g.Results...), append(f.Kernels, g.Kernels...)
	f.Pairs, f.Traces = append(f.Pairs, g.Pairs...), append(f.Traces, g.Traces...)
	f.Speculations = append(f.Speculations, g.Speculations...)
	f.Metered, f.Ops = append(f.Metered, g.Metered...), append(f.Ops, g.Ops...)
	libraries := f.Environment.Libraries
	if f.Environment.GPU == "" && g.Environment.Date != "" {
		f.Environment = g.Environment
	}
	for name, version := range g.Environment.Libraries {
		libraries[name] = version
	}
	f.Environment.Libraries = libraries
}

package cli

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file holds what the previous release called commands and flags. It goes with the next one.

// oldCommands are commands that have moved.
var oldCommands = map[string][]string{
	"opt":              {"graph", "opt"},
	"schedule":         {"graph", "schedule"},
	"cache-sim":        {"simulate", "cache"},
	"trace":            {"simulate", "trace"},
	"transfer":         {"simulate", "transfer"},
	"calibrate-quant":  {"calibrate", "payload"},
	"quantize-weights": {"convert"},
}

// renames rewrites arguments from old names to new ones.
type renames struct {
	args  []string
	notes []string // one for each old name: "cache-sim is now simulate cache"
}

// renamed returns arguments with the present names of commands and flags, and notes on old ones.
func renamed(args []string) (out, notes []string) {
	var lead []string
	if len(args) > 1 && slices.Contains([]string{"help", "__complete", "__completeNoDesc"}, args[0]) {
		lead, args = args[:1], args[1:]
	}
	r := renames{args: slices.Clone(args)}
	if len(args) > 0 {
		r.command()
	}
	r.flag("quantize", "payload")
	if i := r.find("help-all"); i >= 0 {
		r.args = slices.Insert(r.args, i, "--help")
	}
	if slices.Contains(r.args, "-q") || r.find("quiet") >= 0 || len(lead) > 0 && lead[0] != "help" {
		r.notes = nil
	}
	return slices.Concat(lead, r.args), r.notes
}

// command rewrites the command, and flags that only it has.
func (r *renames) command() {
	old := r.args[0]
	if to, ok := oldCommands[old]; ok {
		r.args = slices.Concat(to, r.args[1:])
		r.note(old, strings.Join(to, " "))
	}
	switch old {
	case "simulate":
		if i := r.find("output"); i >= 0 { // FILE in this release
			n := strings.TrimPrefix(r.args[i], "--output=")
			if n == "--output" && i+1 < len(r.args) {
				n = r.args[i+1]
			}
			if _, err := strconv.Atoi(n); err == nil {
				r.flag("output", "tokens")
			}
		}
	case "quantize-weights":
		r.flag("to", "type")
	case "serve":
		if i := r.find("role"); i >= 0 {
			role := r.cut(i, true)
			if role != "both" {
				r.args = slices.Insert(r.args, 1, role)
			}
			r.note("serve --role "+role, strings.TrimSuffix("serve "+role, " both"))
		}
	case "bench":
		r.measurements()
		for _, mode := range []string{"paired", "trace", "meter", "ops"} {
			i := r.find(mode)
			if i < 0 {
				continue
			}
			if path := r.cut(i, mode == "paired" || mode == "trace"); path != "" && path != "true" {
				r.args = append(r.args, path)
			}
			r.args = slices.Insert(r.args, 1, mode)
			r.note("bench --"+mode, "bench "+mode)
			break
		}
	}
}

// measurements rewrites --json FILE as -o FILE.
func (r *renames) measurements() {
	i := r.find("json")
	if i < 0 {
		return
	}
	file, joined := strings.CutPrefix(r.args[i], "--json=")
	if !joined && i+1 < len(r.args) && (r.args[i+1] == "-" || filepath.Ext(r.args[i+1]) == ".json") {
		file = r.args[i+1]
	}
	switch {
	case file == "--json" || file == "true" || file == "false":
	case file == "-":
		r.cut(i, true)
		r.args = append(r.args, "--json")
	default:
		r.cut(i, true)
		r.args = slices.Insert(r.args, i, "-o", file)
		r.note("--json FILE", "-o FILE")
	}
}

// find returns where a flag is among the arguments, or -1.
func (r *renames) find(name string) int {
	for i, a := range r.args {
		if a == "--" {
			break
		}
		if a == "--"+name || strings.HasPrefix(a, "--"+name+"=") {
			return i
		}
	}
	return -1
}

// cut removes the flag at i and returns its value: of --name=value, or of the next argument.
func (r *renames) cut(i int, next bool) (value string) {
	_, value, joined := strings.Cut(r.args[i], "=")
	r.args = slices.Delete(r.args, i, i+1)
	if !joined && next && i < len(r.args) {
		value = r.args[i]
		r.args = slices.Delete(r.args, i, i+1)
	}
	return value
}

// flag renames a flag.
func (r *renames) flag(old, to string) {
	if i := r.find(old); i >= 0 {
		r.args[i] = "--" + to + strings.TrimPrefix(r.args[i], "--"+old)
		r.note("--"+old, "--"+to)
	}
}

func (r *renames) note(old, to string) { r.notes = append(r.notes, old+" is now "+to) }

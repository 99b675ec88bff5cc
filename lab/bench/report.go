package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Report writes a file as Markdown.
func Report(w io.Writer, f *File) {
	e := &f.Environment
	fmt.Fprintf(w, "# Measured %s\n\n", or(e.Date, "at an unknown date"))
	fmt.Fprintf(w, "- GPU: %s\n- machine: %s\n- commit: %s\n", or(e.GPU, "none"), or(e.Machine, "unknown"), or(e.Commit, "unknown"))
	switch {
	case e.Rate > 0:
		fmt.Fprintf(w, "- memory: %.1f GB/s, arithmetic: %.0f GFLOP/s, measured with %d threads by loops in %s\n", e.Bandwidth/1e9, e.Rate/1e9, e.Threads, e.ISA)
	case e.Bandwidth > 0:
		fmt.Fprintf(w, "- memory: %.0f GB/s, measured by copies within the device\n", e.Bandwidth/1e9)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Libraries)) {
		fmt.Fprintf(w, "- %s: %s\n", name, e.Libraries[name])
	}
	reportSpeed(w, f.Results)
	reportModelled(w, f)
	reportHost(w, f.Results)
	reportPeers(w, f)
	reportTurns(w, f.Pairs)
	if len(f.Traces) > 0 {
		fmt.Fprint(w, "\n## Traces\n\nMedians over rounds. TTFT is from a request's arrival to its first token.\n\n")
		ReportTraces(w, f.Traces)
	}
	reportOps(w, f)
	reportKernels(w, f)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// table writes a table whose columns after the first texts ones are numbers.
func table(w io.Writer, texts int, head string, rows [][]string) {
	columns := strings.Split(head, "|")
	fmt.Fprintf(w, "| %s |\n|", strings.Join(columns, " | "))
	for i := range columns {
		fmt.Fprint(w, map[bool]string{true: "---|", false: "---:|"}[i < texts])
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
	}
}

// how returns the program, device and options of a result.
func (r *Result) how() string {
	if r.By != "" {
		return r.By
	}
	list := []string{"krait", r.Device}
	if r.Math != "" && (r.Device != "cpu" || r.Math != "f32") {
		list = append(list, r.Math)
	}
	if !r.Graphs && r.Device != "cpu" {
		list = append(list, "no graphs")
	}
	if r.NoDependent {
		list = append(list, "no dependent launches")
	}
	if r.Ranks > 1 {
		list = append(list, fmt.Sprint(r.Ranks, " ranks"))
	}
	return strings.Join(list, ", ")
}

func reportSpeed(w io.Writer, list []Result) {
	if len(list) == 0 {
		return
	}
	fmt.Fprint(w, "\n## Models\n\nMedians. A step decodes one token per sequence; its roofline is weights and states through memory once. On the CPU the first share is that of prefill, whose roofline is arithmetic; a step's is arithmetic where that is longer.\n\n")
	var rows [][]string
	for i := range list {
		r := &list[i]
		if r.Note != "" {
			continue // written below
		}
		share := percent(r.Share)
		if r.PromptShare > 0 {
			share = percent(r.PromptShare) + ", " + share
		}
		repeats := "–"
		if r.Repeats != nil {
			repeats = map[bool]string{true: "yes", false: "NO"}[*r.Repeats]
		}
		rows = append(rows, []string{r.Model, r.how(), fmt.Sprint(r.Batch), fmt.Sprint(r.Prompt), number(r.TTFT), number(r.Prefill), number(r.Step), number(r.Decode), share, repeats})
	}
	table(w, 2, "model|how|batch|prompt|TTFT, ms|prompt, tokens/s|step, ms|decode, tokens/s|of the roofline|bitwise repeatable", rows)
}

// percent formats a share; 0: unknown.
func percent(share float64) string {
	if share == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// number formats three significant digits, and all before the point.
func number(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func reportHost(w io.Writer, list []Result) {
	var rows [][]string
	for i := range list {
		if r := &list[i]; r.Launches > 0 {
			rows = append(rows, []string{r.Model, r.how(), fmt.Sprint(r.Batch), number(r.Launches), number(r.Copies), number(r.Host), number(1e3 * r.Step)})
		}
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\n## Host time of a step\n\nA captured graph is one launch, copies included. Host time excludes waiting for the device.\n\n")
		table(w, 2, "model|how|batch|launches|copies|host, µs|step, µs", rows)
	}
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

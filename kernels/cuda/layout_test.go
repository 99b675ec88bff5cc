package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/krait-ml/krait/cuda/ptx"
)

// All launches of this package's tests are compared with what their kernels read.
func init() { inspect = inspectLayout }

// inspected has the kernels whose launches were compared, with the kinds of values that they got.
var inspected sync.Map

func inspectLayout(module, function string, params []any) {
	kernel := module + "." + function
	key := kernel + kindsOf(params)
	if _, before := inspected.Load(key); before {
		return
	}
	if _, ok := PTX()[module]; ok { // others are registered
		m, err := declared(module)
		if err != nil {
			panic(err)
		}
		if e, ok := m.Entry(function); ok {
			if err := checkLayout(e, alone(embedded(module), function), params); err != nil {
				panic(fmt.Sprintf("%s: %v", kernel, err))
			}
		}
	}
	inspected.Store(key, true)
}

// kindsOf names the kinds of parameters in their order.
func kindsOf(params []any) string {
	var b strings.Builder
	for _, p := range params {
		if s, ok := p.(Struct); ok {
			b.WriteString("{" + kindsOf(s) + "}")
		} else {
			fmt.Fprintf(&b, " %T", p)
		}
	}
	return b.String()
}

// number is one of those that a kernel is given: where it lies, and what it is.
type number struct {
	at, size int
	kind     string // float, whole, or of loads of several: any
}

func (n number) String() string { return fmt.Sprintf("%s of %d bytes at %d", n.kind, n.size, n.at) }

// numbersOf are the numbers of parameters, as [Params] lays them out.
func numbersOf(from int, params []any) (list []number) {
	for i, p := range params {
		at := from + len(Params(params[:i+1]...)) - len(Params(p))
		switch p := p.(type) {
		case Struct:
			list = append(list, numbersOf(at, p)...)
		case float32, float64:
			list = append(list, number{at, len(Params(p)), "float"})
		default:
			list = append(list, number{at, len(Params(p)), "whole"})
		}
	}
	return list
}

var (
	paramLoad = regexp.MustCompile(`ld\.param(?:\.v(\d))?\.([a-z])(\d+)\s.*\[(%?\w+)(?:\+(\d+))?\];`)
	paramMove = regexp.MustCompile(`mov\.[bu]64\s+(%rd\d+), (%?\w+);`)
)

// readsOf are the parameters that a kernel's PTX loads.
func readsOf(e *ptx.Entry, text []byte) (list []number, err error) {
	base := map[string]int{} // of names of parameters, and of registers with their addresses
	for _, p := range e.Params() {
		base[p.Name] = p.Offset
	}
	_, body, _ := strings.Cut(string(text), ".entry "+e.Name()+"(")
	_, body, _ = strings.Cut(body, "{") // behind the declarations
	for line := range strings.Lines(body) {
		if m := paramLoad.FindStringSubmatch(line); m != nil {
			from, known := base[m[4]]
			count, size, more, kind := atoi(m[1]), atoi(m[3])/8, atoi(m[5]), "whole"
			if !known {
				continue // rmsnorm_each chooses between rows
			}
			switch {
			case m[2] == "f":
				kind = "float"
			case count > 1: // neighbours of different kinds, too
				kind = "any"
			}
			for i := range max(1, count) {
				list = append(list, number{from + more + i*size, size, kind})
			}
		} else if m := paramMove.FindStringSubmatch(line); m != nil {
			if from, known := base[m[2]]; known {
				base[m[1]] = from
			}
		} else if strings.Contains(line, "_param_") {
			return nil, fmt.Errorf("it is not known what this reads: %s", strings.TrimSpace(line))
		}
	}
	return list, nil
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text) // 0 of what is not there
	return n
}

// checkLayout reports where a kernel reads other numbers than a launch gives it: each load is of
// one of them, of its kind, from its first byte on.
func checkLayout(e *ptx.Entry, text []byte, params []any) error {
	if got, want := len(Params(params...)), e.ParamBytes(); got != want {
		return fmt.Errorf("a launch gives %d bytes of parameters; the kernel has %d", got, want)
	}
	given := numbersOf(0, params)
	reads, err := readsOf(e, text)
	for _, r := range reads {
		if !slices.ContainsFunc(given, func(n number) bool { return n.at == r.at && n.size >= r.size && (n.kind == r.kind || r.kind == "any") }) {
			err = errors.Join(err, fmt.Errorf("the kernel reads %v, of what a launch gives: %v", r, given))
		}
	}
	return err
}

// TestLayouts: a launch whose struct lacks a field, or has one of another width or kind, is found.
func TestLayouts(t *testing.T) {
	m, err := declared("norm")
	if err != nil {
		t.Fatal(err)
	}
	e, ok := m.Entry("rmsnorm")
	if !ok {
		t.Fatal("there is no rmsnorm")
	}
	text := alone(embedded("norm"), "rmsnorm")
	right := Struct{uint64(0), int64(1), uint64(2), int64(3), uint64(4), 5, 6, 7, true, float32(8)}
	if err := checkLayout(e, text, []any{right}); err != nil {
		t.Fatal(err)
	}
	if reads, _ := readsOf(e, text); len(reads) < len(right) {
		t.Errorf("of %d fields, %d are found to be read: %v", len(right), len(reads), reads)
	}
	other := map[string]any{"uint64": 1, "int64": 1, "int": int64(1), "bool": uint64(1), "float32": 1}
	for i, field := range right {
		wrong := slices.Clone(right)
		wrong[i] = other[fmt.Sprintf("%T", field)]
		for what, params := range map[string]Struct{"missing": slices.Delete(slices.Clone(right), i, i+1), "of another kind": wrong} {
			if checkLayout(e, text, []any{params}) == nil {
				t.Errorf("field %d that is %s is not found", i, what)
			}
		}
	}
}

// TestParamCounts: kernels of more than eight parameters take a struct.
func TestParamCounts(t *testing.T) {
	for name := range PTX() {
		module, err := declared(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, function := range module.Entries() {
			if e, _ := module.Entry(function); len(e.Params()) > 8 {
				t.Errorf("kernel %s of module %s has %d parameters; with more than 8 it takes a struct", function, name, len(e.Params()))
			}
		}
	}
}

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/exec/state/statefile"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/versions"
	"github.com/krait-ml/krait/lab/calibration"
	"github.com/krait-ml/krait/lowering"
	"github.com/krait-ml/krait/passes"
	"github.com/krait-ml/krait/passes/prove"
	"github.com/krait-ml/krait/transfer"
)

// stored returns a file of testdata/formats, which a krait wrote when the version was new.
func stored(t *testing.T, version int, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../testdata/formats", fmt.Sprint("v", version), name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// newer is the text with the next version in place of the newest, or of none where the first match
// of a pattern ends.
func newer(t *testing.T, f versions.Format, text []byte, pattern, version string) []byte {
	t.Helper()
	at := regexp.MustCompile(pattern).FindIndex(text)
	if at == nil {
		t.Fatalf("no %s in %s", pattern, text)
	}
	return slices.Concat(text[:at[0]], fmt.Appendf(nil, version, f.Version+1), text[at[1]:])
}

// TestFormats reads a stored file of each version of each format, whose meaning must not have
// changed, and refuses the next version by name.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format           versions.Format
		file             string
		pattern, version string // what stands where the version is, and how a newer one is written
		read             func(text []byte) (again []byte, err error)
	}{
		{versions.Graph, "graph.ir", " ranks=1", " ranks=1 version=%d", func(text []byte) ([]byte, error) {
			g, err := graph.Parse(string(text))
			if err != nil {
				return nil, err
			}
			return []byte(graph.Print(g)), graph.Check(g)
		}},
		{versions.Schedule, "schedule.ir", " ranks=2", " ranks=2 version=%d", func(text []byte) ([]byte, error) {
			s, err := lowering.ParseSchedule(string(text))
			if err != nil {
				return nil, err
			}
			return []byte(s.String()), s.Check()
		}},
		{versions.Placement, "placement.place", "version 1", "version %d", func(text []byte) ([]byte, error) {
			_, err := passes.ParseStrategy("placement", string(text))
			return nil, err
		}},
		{versions.Profile, "profile.json", `"version": 1`, `"version": %d`, func(text []byte) ([]byte, error) {
			p, err := cost.Parse("mine", text)
			if err != nil {
				return nil, err
			}
			return p.Text(), nil
		}},
		{versions.Calibration, "calibration.json", `"version": 1`, `"version": %d`, func(text []byte) ([]byte, error) {
			p, err := calibration.Parse(text)
			if err != nil {
				return nil, err
			}
			again, err := json.MarshalIndent(p, "", "  ")
			return append(again, '\n'), err
		}},
	} {
		t.Run(c.format.Name, func(t *testing.T) {
			if c.format.Version != 1 {
				t.Fatalf("version %d: store a file of it in testdata/formats and try it here", c.format.Version)
			}
			text := stored(t, 1, c.file)
			again, err := c.read(text)
			if err != nil || again != nil && !bytes.Equal(again, text) {
				t.Errorf("%v\n%s", err, again)
			}
			_, err = c.read(newer(t, c.format, text, c.pattern, c.version))
			if want := fmt.Sprintf("%s of version 2; this krait reads versions up to 1", c.format.Name); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a newer version: %v; want %s", err, want)
			}
		})
	}
}

// TestStateFormat reads states that were saved in each version, and refuses the next one.
func TestStateFormat(t *testing.T) {
	want := state.Export{Tokens: 2, IDs: []int32{1, 300}, State: &state.HostState{Tokens: 2, Data: [][]byte{{1, 2, 3}, {4}}},
		KV: []*state.HostKV{{From: 0, To: 2, Data: [][]byte{{7, 8}, {9}}}}}
	origin := statefile.Origin{Model: "model", Name: "toy", Layout: "layout", Ranks: "2 ranks by strategy channel", States: "f32"}
	for version := 1; version <= versions.State.Version; version++ {
		switch version { // what each version added
		case 2:
			want.Codecs = "ssm=int8"
		case 3:
			want.Salt = "ann"
		}
		text := stored(t, version, "state")
		if x, err := statefile.Read(bytes.NewReader(text), origin); err != nil || !reflect.DeepEqual(*x, want) {
			t.Errorf("version %d: %+v, %v; want %+v", version, x, err, want)
		}
		var again bytes.Buffer
		if err := statefile.Write(&again, origin, &want); err != nil || !bytes.Equal(again.Bytes(), text) {
			t.Errorf("version %d: %v, %q", version, err, again.Bytes())
		}
		_, err := statefile.Read(bytes.NewReader(newer(t, versions.State, text, `^krait-\d`, "krait-%d")), origin)
		if err == nil || !strings.HasPrefix(err.Error(), "saved state of version 4; this krait reads versions up to 3") {
			t.Errorf("a newer version: %v", err)
		}
	}
}

// TestCertificateFormat: programs that read certificates of version 1 find all its keys in those of
// today.
func TestCertificateFormat(t *testing.T) {
	g, err := graph.Parse(string(stored(t, 1, "graph.ir")))
	if err != nil {
		t.Fatal(err)
	}
	source, err := passes.Compile(g, passes.Options{Ranks: 2, Stop: graph.UnpackedStage})
	if err != nil {
		t.Fatal(err)
	}
	sharded, err := passes.Compile(source, passes.Options{Ranks: 2, Stop: graph.PartitionedStage})
	if err != nil {
		t.Fatal(err)
	}
	c, err := prove.Prove(source, sharded, prove.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	now, then := keys(t, text), keys(t, stored(t, versions.Certificate.Version, "certificate.json"))
	for key := range then {
		if !now[key] {
			t.Errorf("%s is gone: it is another version of the format (internal/versions)", key)
		}
	}
}

// keys returns the paths of the keys of JSON, with the type of each value.
func keys(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	var visit func(path string, v any)
	visit = func(path string, v any) {
		found[fmt.Sprintf("%s: %T", path, v)] = true
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				visit(path+"."+key, value)
			}
		case []any:
			for _, value := range v {
				visit(path+"[]", value)
			}
		}
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	visit("", v)
	return found
}

// TestFormatsPage: docs/formats.md has the version of each format.
func TestFormatsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(slices.Clone(versions.All), versions.Format{Name: "transfer protocol", Version: transfer.Protocol}) {
		if row := fmt.Sprintf("| %s | %d |", f.Name, f.Version); !strings.Contains(string(page), row) {
			t.Errorf("docs/formats.md does not have %s", row)
		}
	}
}

package session_test

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec"
)

// TestPrefixCacheCodec: the host's memory and a folder have the bytes that the codec makes; what is
// there in another is left alone, by name.
func TestPrefixCacheCodec(t *testing.T) {
	dir := "../testdata/golden/jamba"
	o := krait.Options{Slots: 2, PrefixCache: 1 << 40, PrefixCacheDir: t.TempDir(), StateCodec: "int8/64"}
	prompt := randomIDs(40, 200)
	list := []call{{prompt, krait.Generate{MaxTokens: 3, IgnoreEOS: true}}}
	got, cached, m := ran(t, dir, o, list)
	files := prefixFiles(t, o.PrefixCacheDir)
	if len(files) == 0 || cached[0] != 0 {
		t.Fatal(len(files), cached)
	}
	codecs := m.Session().Codecs()
	states, row := codecs.StateBytes(), codecs.KVBytes()
	for path, data := range files {
		if want := states + 50*row + 3000; int64(len(data)) > want || !bytes.HasPrefix(data, []byte("krait-2\n")) {
			t.Errorf("%s has %d bytes, more than %d, or begins with %q", path, len(data), want, data[:8])
		}
	}
	list[0].prompt = slices.Concat(prompt, got[0], []int{1, 2})
	if _, cached, m = ran(t, dir, o, list); cached[0] == 0 || len(m.Warnings) > 0 {
		t.Errorf("%v are cached, %q", cached, m.Warnings)
	}
	for codec, want := range map[string]string{"": "are in other codecs than none, and are ignored", "int4": "are in other codecs than ssm=int4/32,cache=int4/32, and are ignored"} {
		o.StateCodec = codec
		if _, cached, m = ran(t, dir, o, list); cached[0] != 0 || len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], want) {
			t.Errorf("%q: %v are cached, %q", codec, cached, m.Warnings)
		}
		os.RemoveAll(o.PrefixCacheDir)
		for path, data := range files {
			if err := cmp.Or(os.MkdirAll(o.PrefixCacheDir, 0o777), os.WriteFile(path, data, 0o666)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPrefixCacheNotFinite: a state that no codec takes is not brought to the host, and all else
// is.
func TestPrefixCacheNotFinite(t *testing.T) {
	dir := "../testdata/golden/jamba"
	m := openModel(t, dir, krait.Options{Slots: 2, StateCodec: "int8"})
	costs := prefixModel(m)
	m = openModel(t, dir, krait.Options{Slots: 2, StateCodec: "int8", PrefixCache: costs.Bytes(30, true), PrefixCacheHost: 1 << 30, PrefixPolicy: "lru"})
	leave := func(first int, bad bool) []int {
		ids := make([]int, 20)
		for i := range ids {
			ids[i] = first + i
		}
		slot, err := m.Engine().Alloc()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Engine().Free(slot)
		if _, _, err := m.Session().Cache().Begin(slot, "", ids, nil, nil); err != nil {
			t.Fatal(err)
		}
		b := exec.Batch{Sequences: []exec.Sequence{{Slot: slot, Tokens: ids}}}
		if _, err := m.Engine().Step(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if bad {
			name := ""
			for _, st := range m.States() {
				if strings.HasSuffix(st.Name, ".ssm") {
					name = st.Name
				}
			}
			values, err := m.Engine().State(slot, name)
			values[0] = float32(math.Inf(1))
			if err := cmp.Or(err, m.Engine().SetState(slot, name, values)); err != nil {
				t.Fatal(err)
			}
		}
		m.Session().Cache().End(slot, ids, false)
		return ids
	}
	good := leave(1, false)
	bad := leave(50, true)
	leave(100, false) // drives out what was before it
	hit := func(ids []int) int {
		slot, err := m.Engine().Alloc()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Engine().Free(slot)
		n, _, err := m.Session().Cache().Begin(slot, "", append(slices.Clone(ids), 3, 4), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Session().Cache().End(slot, nil, true)
		return n
	}
	if n := hit(bad); n != 0 {
		t.Errorf("%d tokens of what is not finite are hit", n)
	}
	if n := hit(good); n != 20 {
		t.Errorf("%d tokens of what is finite are hit", n)
	}
	if s := m.Session().PrefixCache(); s.Refused == 0 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

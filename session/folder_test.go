package session_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
)

// prefixFiles are the files of a folder, with their bytes.
func prefixFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, path := range list {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = data
	}
	return files
}

// ran opens a model, generates, and closes it.
func ran(t *testing.T, dir string, o krait.Options, list []call) (got [][]int, cached []int, m *krait.Model) {
	t.Helper()
	m, err := krait.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		g, err := m.GenerateIDs(t.Context(), c.prompt, c.o)
		if err != nil {
			t.Fatal(err)
		}
		got, cached = append(got, g.IDs), append(cached, g.CachedTokens)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return got, cached, m
}

// TestPrefixCacheDir: a cache outlives its model: what was generated before is gone on
// from, as if the model had not been closed, and all tokens are those without a cache.
func TestPrefixCacheDir(t *testing.T) {
	few := goldens.Few(t)
	for i, name := range []string{"jamba", "mamba-a", "mamba2-g1", "attention"} {
		if few && name != "mamba-a" && name != "attention" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, o := "../testdata/golden/"+name, krait.Options{Slots: 2, Sharding: krait.Sharding{Ranks: 1 + i%3}}
			if name == "attention" {
				dir = attentionOnly(t)
			}
			plain := openModel(t, dir, o)
			list := sharing(rand.New(rand.NewPCG(13, uint64(i))), 24, plain.Vocab(), 60)
			want, _, _ := ran(t, dir, o, list)
			o.PrefixCache = 1 << 40
			_, whole, _ := ran(t, dir, o, list)
			o.PrefixCacheDir = filepath.Join(t.TempDir(), "new", "folder")
			var cached []int
			for part := range slices.Chunk(list, 6) {
				got, hits, m := ran(t, dir, o, part)
				if n := len(cached); !slices.EqualFunc(got, want[n:n+6], slices.Equal[[]int]) || len(m.Warnings) > 0 {
					t.Fatalf("from %d on: %v, want %v; %v", n, got, want[n:n+6], m.Warnings)
				}
				cached = append(cached, hits...)
			}
			for k := range cached {
				if cached[k] < whole[k] {
					t.Errorf("generation %d: %d tokens were cached, by a model that was not closed %d", k, cached[k], whole[k])
				}
			}
			before := prefixFiles(t, o.PrefixCacheDir)
			ran(t, dir, o, nil)
			after := prefixFiles(t, o.PrefixCacheDir)
			if len(before) == 0 || len(after) != len(before) {
				t.Errorf("%d files, and after nothing was generated %d", len(before), len(after))
			}
			for path, data := range before {
				if !bytes.Equal(after[path], data) {
					t.Errorf("%s is another", path)
				}
			}
			costs := prefixModel(plain)
			o.PrefixCache = 3 * costs.Bytes(60, true)
			got, _, _ := ran(t, dir, o, list)
			total, n := int64(0), prefixFiles(t, o.PrefixCacheDir)
			for _, data := range n {
				total += int64(len(data))
			}
			if most := o.PrefixCache + int64(len(n))*2000; !slices.EqualFunc(got, want, slices.Equal[[]int]) || total > most || len(n) == 0 {
				t.Errorf("%d bytes in %d files, at most %d are to be; %v, want %v", total, len(n), most, got, want)
			}
		})
	}
}

// TestPrefixCacheDirDamaged: each file in turn is damaged, cut or missing: there is a
// warning that names it, and what is generated is right; then it is there again.
func TestPrefixCacheDirDamaged(t *testing.T) {
	dir, o := "../testdata/golden/jamba", krait.Options{Slots: 2}
	list := sharing(rand.New(rand.NewPCG(14, 14)), 8, 256, 60)
	want, _, _ := ran(t, dir, o, list)
	o.PrefixCache, o.PrefixCacheDir = 1<<40, t.TempDir()
	ran(t, dir, o, list)
	r := rand.New(rand.NewPCG(15, 15))
	files := prefixFiles(t, o.PrefixCacheDir)
	paths, faults := slices.Sorted(maps.Keys(files)), []string{"damaged", "cut", "missing", "empty"}
	for _, c := range covering.Each(t, []int{len(paths)}, len(faults)) {
		path, what := paths[c[0]], faults[c[1]]
		bad := bytes.Clone(files[path])
		switch what {
		case "damaged":
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		case "cut":
			bad = bad[:r.IntN(len(bad))]
		case "empty":
			bad = nil
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if what == "missing" {
			os.Remove(path)
		}
		got, _, m := ran(t, dir, o, list)
		if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Fatalf("%s %s: %v, want %v", path, what, got, want)
		}
		if w := strings.Join(m.Warnings, "\n"); what != "missing" && !strings.Contains(w, filepath.Base(path)+" (it ") {
			t.Errorf("%s %s: %q", path, what, w)
		}
		_, _, m = ran(t, dir, o, nil)
		if len(m.Warnings) > 0 {
			t.Errorf("%s %s, and after that %q", path, what, m.Warnings)
		}
	}
}

// TestPrefixCacheDirPrivate: only its owner may read the folder and its files, new ones and those
// that were open to others; a folder that is open to others and has other files is an error, and
// stays as it is.
func TestPrefixCacheDirPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	o := krait.Options{PrefixCache: 1 << 40, PrefixCacheDir: filepath.Join(t.TempDir(), "kept")}
	list := calls(rand.New(rand.NewPCG(17, 17)), 3, 256, 20)
	check := func(what string) {
		t.Helper()
		if info, err := os.Stat(o.PrefixCacheDir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
		files := prefixFiles(t, o.PrefixCacheDir)
		for path := range files {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", what, info.Mode(), err)
			}
		}
		if len(files) == 0 {
			t.Errorf("%s: there are no files", what)
		}
	}
	ran(t, "../testdata/golden/mamba-a", o, list)
	check("new")
	os.Chmod(o.PrefixCacheDir, 0o755)
	for path := range prefixFiles(t, o.PrefixCacheDir) {
		os.Chmod(path, 0o644)
	}
	_, _, m := ran(t, "../testdata/golden/mamba-a", o, nil)
	check("opened again")
	if len(m.Warnings) > 0 {
		t.Error(m.Warnings)
	}
	os.WriteFile(filepath.Join(o.PrefixCacheDir, "notes.txt"), []byte("mine"), 0o644)
	os.Chmod(o.PrefixCacheDir, 0o755)
	_, err := krait.Open("../testdata/golden/mamba-a", o)
	if err == nil || !strings.Contains(err.Error(), "is accessible to others than its owner (drwxr-xr-x) and has files other than a prefix cache, such as notes.txt") {
		t.Error(err)
	}
	if info, err := os.Stat(o.PrefixCacheDir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("refused: %v, %v", info.Mode(), err)
	}
}

// TestPrefixCacheDirForeign: files of other models, and on other ranks, are named, left
// alone, and not used; and so is what is no file of Krait.
func TestPrefixCacheDirForeign(t *testing.T) {
	o := krait.Options{Slots: 2, PrefixCache: 1 << 40, PrefixCacheDir: t.TempDir()}
	list := calls(rand.New(rand.NewPCG(16, 16)), 2, 256, 20)
	if err := os.Chmod(o.PrefixCacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(o.PrefixCacheDir, "notes.txt"), []byte("mine"), 0o666)
	os.Mkdir(filepath.Join(o.PrefixCacheDir, "folder.prefix"), 0o777)
	on := slices.Clone(list) // second turns
	got, _, _ := ran(t, "../testdata/golden/mamba-a", o, list)
	for i := range on {
		on[i].prompt = slices.Concat(on[i].prompt, got[i], []int{1, 2})
	}
	files, _ := filepath.Glob(filepath.Join(o.PrefixCacheDir, "*-*"))
	o.Sharding.Ranks = 2
	_, cached, m := ran(t, "../testdata/golden/mamba-a", o, on)
	if slices.Max(cached) > 0 || len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], "are of another model or another layout over ranks, and are ignored") ||
		!strings.Contains(m.Warnings[0], filepath.Base(files[0])) {
		t.Errorf("%v cached, %q", cached, m.Warnings)
	}
	o.Sharding.Ranks = 1
	if _, cached, m = ran(t, "../testdata/golden/mamba-a", o, on); slices.Min(cached) == 0 || len(m.Warnings) != 1 {
		t.Errorf("then %v cached, %q", cached, m.Warnings)
	}
	if _, err := os.Stat(filepath.Join(o.PrefixCacheDir, "notes.txt")); err != nil {
		t.Error(err)
	}
	file := filepath.Join(o.PrefixCacheDir, "notes.txt")
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		o.PrefixCacheDir = dir
		if _, err := krait.Open("../testdata/golden/mamba-a", o); err == nil || !strings.HasPrefix(err.Error(), "PrefixCache") {
			t.Errorf("%s as a folder: %v", dir, err)
		}
	}
}

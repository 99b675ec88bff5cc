package tests

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/cuda/sim"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/transfer"
	"github.com/krait-ml/krait/transfer/prefill"
	"github.com/krait-ml/krait/transfer/ucx"
)

// prefillPairs are rank counts of prefill and of decode.
var prefillPairs = [][2]int{{1, 4}, {4, 1}, {3, 2}, {1, 1}, {2, 2}, {4, 4}, {1, 2}, {2, 1}, {2, 3}, {3, 4},
	{4, 3}, {5, 2}, {2, 5}, {8, 3}, {3, 8}, {8, 8}, {6, 4}, {7, 1}, {1, 7}, {5, 6}}

// serveModel lets others have prompts read by a model, over TCP, too.
func serveModel(t testing.TB, m *krait.Model, o transfer.ServerOptions) (s *transfer.Server, address string) {
	t.Helper()
	s, err := prefill.NewServer(m.Session(), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// prefillBy makes what has prompts read by a server.
func prefillBy(t testing.TB, m *krait.Model, from prefill.Options) *prefill.Client {
	t.Helper()
	p, err := prefill.New(m.Session(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// transports are those that this machine has.
func transports(t testing.TB) []string {
	if _, err := ucx.Version(); err != nil {
		t.Log("NOT TESTED: ", err)
		return []string{"local", "tcp"}
	}
	return []string{"local", "tcp", "ucx"}
}

// greedy is how a prompt goes on.
func greedy(t testing.TB, m *krait.Model, prompt []int, p krait.Prefiller) *krait.Generation {
	t.Helper()
	g, err := m.GenerateIDs(context.Background(), prompt, krait.Generate{MaxTokens: 4, IgnoreEOS: true, Prefill: p})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// nothingHeld checks that all memory of an engine is free, but for what its cache has.
func nothingHeld(t testing.TB, what string, m *krait.Model) {
	t.Helper()
	if m.Session().PrefixCacheBytes() > 0 {
		return
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		u := m.Engine().PageUse()
		states, free := m.Engine().CopyUse()
		if u.Pages == u.Free && states == free {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: of %d pages %d are free, and of %d places of states %d", what, u.Pages, u.Free, states, free)
		}
	}
}

// TestPrefill: with prompts read elsewhere, on whatever ranks and by whatever transport, with
// prefix caches on both sides and without, every model says what it says alone.
func TestPrefill(t *testing.T) {
	by, folders, pairs := transports(t), covering.Drawn(t, goldens.Folders(t, "..")), covering.Drawn(t, prefillPairs)
	cases := covering.Each(t, []int{len(folders), len(pairs)}, len(by), 2)
	for g, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			alone := openModel(t, dir, krait.Options{})
			type side struct {
				*krait.Model
				server  *transfer.Server
				address string
			}
			for k, cached := range []bool{false, true} {
				sides := map[int]side{}
				on := func(ranks int) side {
					if _, ok := sides[ranks]; !ok {
						o := krait.Options{Sharding: krait.Sharding{Ranks: ranks}, PageTokens: 3 + 5*(ranks%3), Workers: 1}
						if cached {
							o.PrefixCache = 1 << 24
						}
						m := openModel(t, dir, o)
						s, address := serveModel(t, m, transfer.ServerOptions{})
						sides[ranks] = side{m, s, address}
					}
					return sides[ranks]
				}
				shared := randomIDs(17, alone.Vocab())
				for _, c := range cases {
					if c[0] == g && c[3] == k {
						i, pair, name := c[1], pairs[c[1]], by[c[2]]
						from, to := on(pair[0]), on(pair[1])
						prompt := slices.Concat(shared, randomIDs(1+i%7, alone.Vocab()))
						want := greedy(t, alone, prompt, nil)
						f := prefill.Options{Address: from.address, Transport: name, Strict: true}
						if name == "local" {
							f = prefill.Options{Server: from.server, Strict: true}
						}
						p := prefillBy(t, to.Model, f)
						got := greedy(t, to.Model, prompt, p)
						what := fmt.Sprintf("%d to %d ranks by %s, prefix caches %v", pair[0], pair[1], name, cached)
						if !slices.Equal(got.IDs, want.IDs) {
							t.Errorf("%s: %v, want %v", what, got.IDs, want.IDs)
						}
						if x := got.Remote; x == nil || x.Tokens != len(prompt)-1 || x.Bytes == 0 {
							t.Errorf("%s: %+v", what, x)
						}
						p.Close()
						nothingHeld(t, what, to.Model)
						nothingHeld(t, what, from.Model)
					}
				}
				for _, s := range sides {
					s.server.Close()
					s.Close()
				}
			}
		})
	}
}

// TestPrefillHeld: rows of a prefix that the decode side has do not travel; what comes is the
// same bits.
func TestPrefillHeld(t *testing.T) {
	dir := "../testdata/golden/bamba"
	from := openModel(t, dir, krait.Options{PrefixCache: 1 << 24, PageTokens: 4})
	to := openModel(t, dir, krait.Options{PrefixCache: 1 << 24, PageTokens: 7, Sharding: krait.Sharding{Ranks: 2}})
	s, address := serveModel(t, from, transfer.ServerOptions{})
	p := prefillBy(t, to, prefill.Options{Address: address, Strict: true})
	prompt := randomIDs(41, to.Vocab())
	other := slices.Clone(prompt)
	other[30] = (other[30] + 1) % to.Vocab()
	alone := openModel(t, dir, krait.Options{})
	var bytes []int64
	for i, x := range [][]int{prompt, other, other} {
		g := greedy(t, to, x, p)
		if want := greedy(t, alone, x, nil); !slices.Equal(g.IDs, want.IDs) {
			t.Errorf("prompt %d: %v, want %v", i, g.IDs, want.IDs)
		}
		if held := []int{0, 30, 40}[i]; g.Remote.Local != held || g.Remote.Tokens != 40 {
			t.Errorf("prompt %d: %+v, of %d tokens the rows are there", i, g.Remote, held)
		}
		bytes = append(bytes, g.Remote.Bytes)
	}
	row := to.Engine().KVBytes()
	if bytes[0]-bytes[1] != 30*row || bytes[0]-bytes[2] != 40*row {
		t.Errorf("%v bytes traveled; a row has %d", bytes, row)
	}
	if st := s.Stats(); st.Released != 3 || st.Lent != 0 {
		t.Errorf("%+v", st)
	}
	if st := p.Stats(); st.Fetched != 3 || st.Held != 70 || st.Fallbacks != 0 || st.Bytes != bytes[0]+bytes[1]+bytes[2] {
		t.Errorf("%+v", st)
	}
}

// TestPrefillStates: what arrives is what the prefill side had after all tokens but the last,
// bit for bit, and with one token more it is not.
func TestPrefillStates(t *testing.T) {
	for _, name := range []string{"bamba", "mamba-a", "zamba2", "jamba"} {
		dir := "../testdata/golden/" + name
		from := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: 3}, PageTokens: 5})
		to := openModel(t, dir, krait.Options{Sharding: krait.Sharding{Ranks: 2}, PageTokens: 4})
		_, address := serveModel(t, from, transfer.ServerOptions{})
		p := prefillBy(t, to, prefill.Options{Address: address})
		ids := randomIDs(24, to.Vocab())
		there := sequence(t, from)
		stepped(t, there, ids[:22]...)
		arrive := func(prompt []int) *seq {
			a, r, err := p.Prefill(t.Context(), to.Session(), "", prompt, nil)
			if err != nil || r.Fallback != nil {
				t.Fatal(err, r.Fallback)
			}
			q := sequence(t, to)
			if n, err := a.Begin(q.slot); err != nil || n != len(prompt)-1 {
				t.Fatal(n, err)
			}
			return q
		}
		good, late := arrive(ids[:23]), arrive(ids[:24])
		sameSnapshot(t, name, snapshot(t, good), snapshot(t, there))
		want := slices.Clone(stepped(t, good, ids[22]))
		got := stepped(t, late, ids[22])
		if sameBits(got, want) {
			t.Errorf("%s: a state after one token more is not told from the right one", name)
		}
	}
}

// TestPrefillCUDA: states of a simulated GPU go through buffers of the host.
func TestPrefillCUDA(t *testing.T) {
	goldens.CI(t)
	dir := shallow(t, "bamba", 2)
	alone := openModel(t, dir, krait.Options{})
	gpu := openModel(t, dir, krait.Options{Device: &cuda.Device{Driver: sim.New(sim.Options{Devices: 1})}, PageTokens: 4})
	s, address := serveModel(t, gpu, transfer.ServerOptions{})
	prompt := randomIDs(13, alone.Vocab())
	want := greedy(t, alone, prompt, nil)
	for _, name := range transports(t) {
		f := prefill.Options{Address: address, Transport: name, Strict: true}
		if name == "local" {
			f = prefill.Options{Server: s, Strict: true}
		}
		for _, to := range []*krait.Model{alone, gpu} {
			if g := greedy(t, to, prompt, prefillBy(t, to, f)); !slices.Equal(g.IDs, want.IDs) {
				t.Errorf("%s: %v, want %v", name, g.IDs, want.IDs)
			}
		}
	}
}

//go:build unix

package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServeMemory: flags that ask for more than the memory plan has room for are refused with the
// reason, and without them the bound on tokens is the plan's.
func TestServeMemory(t *testing.T) {
	const jamba = "../testdata/golden/jamba"
	for _, c := range []struct{ args, want string }{
		{"--memory 1MiB", "the weights alone take 2.9 MiB, and a device has 1.0 MiB, which is too little for any slots and caches; give at least 9.9 MiB for 8 slots, or 8-bit weights (krait convert --type q8)\n"},
		{"--memory 4MiB", "does not fit: a device has 4.0 MiB for 8 slots: weights of 2.9 MiB, states of 3.8 MiB, activations of 3.1 MiB; give at least 9.9 MiB for 8 slots, or fewer slots\n"},
		{"--memory 1MiB --slots 1 --device cuda-sim", "the weights alone take 2.9 MiB, and a device has 1.0 MiB, which is too little for any slots and caches; give at least 7.3 MiB for 1 slot, or more ranks, each on a GPU of its own\n"},
		{"--memory much", `"much" is not a number of bytes`},
		{"prefill --memory 1GiB", "unknown flag: --memory"},
		{"--max-queue-tokens -1", "must be at least 1, or 0"},
		{jamba + " --memory 16MiB --max-queue-tokens 40000", "--max-queue-tokens 40000 does not fit into memory"},
		{jamba + " --memory 16MiB --context 5000", "a context of 5000 tokens in each of 8 slots takes 320 pages"},
		{jamba + " --memory 16MiB --slots 500", "500 slots"},
	} {
		p, _, errs := command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(c.args)...)...)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		stop := time.AfterFunc(30*time.Second, func() { p.Process.Kill() }) // it serves, and should not
		err := p.Wait()
		if stop.Stop(); err == nil || !strings.Contains(errs.String(), c.want) {
			t.Errorf("serve %s: %v %s, want %s", c.args, err, errs, c.want)
		}
	}
	address, _, errs := answering(t, jamba, "--memory", "16MiB")
	r, err := http.Get(address + "/board")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	_, room, _ := strings.Cut(errs.String(), "room for ")
	room, _, _ = strings.Cut(room, " ")
	if room == "" || !strings.Contains(string(text), `"max_tokens":`+room+",") {
		t.Errorf("room for %q tokens: %s", room, text)
	}
}

package openai_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/openai"
)

// TestBoard: the page is served if there is a board, its data requires a key if the server has keys
// and has no texts, and its polling does not fill the log.
func TestBoard(t *testing.T) {
	keys, err := openai.ReadKeys(strings.NewReader(fmt.Sprintf("ann %x\nbob %x\n", sha256.Sum256([]byte("sesame")), sha256.Sum256([]byte("open")))))
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		var skip atomic.Int64
		shown := board.New(board.Options{Now: func() time.Time { return time.Now().Add(time.Duration(skip.Load())) }})
		m, err := krait.Embedded(krait.Options{Slots: 2, PrefixCache: 1 << 20, Batches: shown.Batch, Record: shown.Record, Recording: shown.Watched})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var log strings.Builder
		o := openai.Options{Keys: keys, Log: slog.New(slog.NewTextHandler(&log, nil))}
		if on {
			o.Board = shown
		}
		s, err := openai.New(m, o)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, key, body string) (int, string) {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			text, _ := io.ReadAll(w.Body)
			return w.Code, string(text)
		}
		if !on {
			for _, path := range []string{"/", "/board"} {
				if status, _ := ask("GET", path, "sesame", ""); status != 404 {
					t.Errorf("without a page %s is %d", path, status)
				}
			}
			continue
		}
		for _, c := range []struct {
			method, path, key string
			status            int
		}{{"GET", "/", "", 200}, {"POST", "/", "", 405}, {"GET", "/index.html", "", 404}, {"GET", "/board", "", 401}, {"GET", "/board", "wrong", 401}, {"POST", "/board", "sesame", 405}, {"GET", "/board", "sesame", 200}} {
			if status, text := ask(c.method, c.path, c.key, ""); status != c.status {
				t.Errorf("%s %s with the key %q is %d: %.200s", c.method, c.path, c.key, status, text)
			}
		}
		if n := strings.Count(log.String(), "path=/board status=200"); n != 0 {
			t.Errorf("the log has %d lines of the page's polling", n)
		}
		if !strings.Contains(log.String(), "path=/board status=401") {
			t.Error("the log does not say who may not look")
		}
		secret := "the crown jewels are in the attic"
		if status, text := ask("POST", "/v1/completions", "sesame", fmt.Sprintf(`{"prompt": %q, "max_tokens": 9, "temperature": 0}`, secret)); status != http.StatusOK {
			t.Fatal(status, text)
		}
		skip.Store(int64(2100 * time.Millisecond)) // what was made for others is old then
		_, text := ask("GET", "/board", "open", "")
		var got board.State
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if got.Totals.Prefill+got.Totals.Decode < int64(len(secret)) || got.Slots != 2 || got.Ranks != 1 || got.Model != "tiny-mamba" || got.Lanes == nil || got.Cache.Capacity != 1<<20 {
			t.Errorf("the board says %.600s", text)
		}
		for _, never := range []string{"crown", "jewel", "ann", "sesame", "99,114,111"} { // c r o
			if strings.Contains(text, never) {
				t.Errorf("the board says %s: %.600s", never, text)
			}
		}
	}
}

// TestLocal: a server without keys that is for its own machine does not answer to names that
// others can let lead here.
func TestLocal(t *testing.T) {
	m, err := krait.Embedded(krait.Options{Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, bound := range []bool{true, false} {
		s, err := openai.New(m, openai.Options{Local: bound, Hosts: []string{"krait.example"}})
		if err != nil {
			t.Fatal(err)
		}
		for host, ours := range map[string]bool{"127.0.0.1:8080": true, "localhost": true, "LOCALHOST:8080": true, "[::1]:8080": true, "::1": true, "10.0.0.7:80": true, "krait.example:80": true, "Krait.Example": true, "a.krait.example": false,
			"evil.example:8080": false, "127.0.0.1.evil.example": false, "localhost.evil.example:8080": false, "": false, "localhost.": false, "[evil.example]:80": false} {
			r := httptest.NewRequest("GET", "/v1/models", nil)
			r.Host = host
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if want := map[bool]int{true: 200, false: 421}[ours || !bound]; w.Code != want {
				t.Errorf("asked as %q, bound %t: %d", host, bound, w.Code)
			}
		}
	}
}

package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/krait-ml/krait/checkpoint/hub/hubtest"
)

// faults are servers that misbehave on requests for the weights: what comes of them, and how many
// requests it takes.
var faults = []struct {
	name     string
	answer   func(n int, w http.ResponseWriter, r *http.Request) bool // to request n, from 1 on
	want     string                                                   // in the error; "": the file arrives
	requests int
}{
	{"truncates twice", func(n int, w http.ResponseWriter, r *http.Request) bool {
		return n <= 2 && cut(w, r, 100_000)
	}, "", 3},
	{"truncates always, and so progresses", func(n int, w http.ResponseWriter, r *http.Request) bool { return cut(w, r, 30_000) }, "", 11},
	{"sends nothing", func(n int, w http.ResponseWriter, r *http.Request) bool { return cut(w, r, 0) }, "model.safetensors: HOST sent 0 of 320000 bytes (6 attempts)", attempts},
	{"stalls after the headers", func(n int, w http.ResponseWriter, r *http.Request) bool { return n == 1 && stall(w, r, 0) }, "", 2},
	{"stalls in the middle", func(n int, w http.ResponseWriter, r *http.Request) bool { return n <= 2 && stall(w, r, 50_000) }, "", 3},
	{"is slow, and does not stall", func(n int, w http.ResponseWriter, r *http.Request) bool {
		for from := 0; from < len(weights); from += len(weights) / 5 {
			io.WriteString(w, weights[from:][:len(weights)/5])
			w.(http.Flusher).Flush()
			time.Sleep(600 * time.Millisecond)
		}
		return true
	}, "", 1},
	{"never answers", func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			<-r.Context().Done()
		}
		return n == 1
	}, "", 2},
	{"has no ranges", func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			return cut(w, r, 100_000)
		}
		io.WriteString(w, weights)
		return true
	}, "", 2},
	{"answers another range", func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 1:
			return cut(w, r, 100_000)
		case 2:
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(weights)-1, len(weights)))
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, weights)
			return true
		}
		return false
	}, "", 3},
	{"416", func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			return cut(w, r, 100_000)
		}
		if n == 2 {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		}
		return n == 2
	}, "", 3},
	{"429 with Retry-After", func(n int, w http.ResponseWriter, r *http.Request) bool { return n <= 2 && busy(w, "0", 429) }, "", 3},
	{"429 for an hour", func(n int, w http.ResponseWriter, r *http.Request) bool { return busy(w, "3600", 429) }, "429 Too Many Requests, and asks to wait 1h0m0s", 1},
	{"503", func(n int, w http.ResponseWriter, r *http.Request) bool { return n <= 3 && busy(w, "", 503) }, "", 4},
	{"503 always", func(n int, w http.ResponseWriter, r *http.Request) bool { return busy(w, "", 503) }, "503 Service Unavailable (6 attempts)", attempts},
	{"wrong bytes", func(n int, w http.ResponseWriter, r *http.Request) bool {
		hubtest.Serve(w, r, strings.Replace(weights, "7", "8", 1))
		return true
	}, "have the hash", 1},
	{"too few bytes", func(n int, w http.ResponseWriter, r *http.Request) bool {
		hubtest.Serve(w, r, weights[:1000])
		return true
	}, "(6 attempts)", attempts},
	{"too many bytes", func(n int, w http.ResponseWriter, r *http.Request) bool {
		hubtest.Serve(w, r, "x"+weights)
		return true
	}, "have the hash", 1},
	{"a page in its place", func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}, "org/tiny is gated", 1},
	{"redirects in a circle", func(n int, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
		return true
	}, "the redirect is refused: more than 10 in a row", 11},
}

func cut(w http.ResponseWriter, r *http.Request, most int) bool {
	var from int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
	w.Header().Set("Content-Length", strconv.Itoa(len(weights)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(weights)-1, len(weights)))
		w.WriteHeader(http.StatusPartialContent)
	}
	io.WriteString(w, weights[from:min(len(weights), from+most)])
	return true // the connection is cut as the length is not reached
}

func stall(w http.ResponseWriter, r *http.Request, after int) bool {
	cut(w, r, after)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
	return true
}

func busy(w http.ResponseWriter, after string, status int) bool {
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	w.WriteHeader(status)
	return true
}

// TestFaults: a download survives a bad server, or says what it did; no wrong file gets a name.
func TestFaults(t *testing.T) {
	for _, x := range faults {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := hubtest.New(t)
			s.Put("org/tiny", tiny())
			var n atomic.Int32
			s.Serve = func(w http.ResponseWriter, r *http.Request, content string) bool {
				return content == weights && x.answer(int(n.Add(1)), w, r)
			}
			h := newHub(t, s.URL)
			got, err := h.Pull(t.Context(), mustParse(t, "org/tiny"), Options{})
			if requests := int(n.Load()); x.requests > 0 && requests != x.requests {
				t.Errorf("%d requests; want %d", requests, x.requests)
			}
			if x.want != "" {
				if want := strings.ReplaceAll(x.want, "HOST", h.Host()); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %s", err, want)
				}
				if _, err := h.Find(mustParse(t, "org/tiny"), Config); !errors.Is(err, ErrMissing) {
					t.Errorf("there is a snapshot: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(got.Path, "model.safetensors"))
			if err != nil || string(data) != weights {
				t.Errorf("%d bytes, %v", len(data), err)
			}
		})
	}
}

// TestResume: what an interrupted download has left is not downloaded again, and is dropped if it
// is of another file.
func TestResume(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	h := newHub(t, s.URL)
	ctx, stop := context.WithCancel(t.Context())
	s.Serve = func(w http.ResponseWriter, r *http.Request, content string) bool {
		return content == weights && stall(w, r, 200_000)
	}
	_, err := h.Pull(ctx, mustParse(t, "org/tiny"), Options{Tell: func(done, _ int64) {
		if done > 200_000 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	all, _ := h.List()
	if len(all) != 1 || all[0].Path != "" || all[0].Partial < 200_000 {
		t.Fatalf("after the interruption: %+v", all)
	}
	s.Serve = nil
	s.Requests()
	rest := int64(len(weights) - 200_000)
	got := mustPull(t, h, "org/tiny", Options{})
	if requests := s.Requests(); got.Fetched < rest || got.Fetched > rest+100 || // with the small files
		!slices.ContainsFunc(requests, func(r string) bool {
			return strings.HasSuffix(r, "/model.safetensors bytes=200000-")
		}) {
		t.Errorf("%d bytes fetched, want %d: %q", got.Fetched, rest, requests)
	}

	blob, err := filepath.EvalSymlinks(filepath.Join(got.Path, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{weights[:1000], "other" + weights[:1000], weights, weights[1:] + "x", weights + weights} {
		if err := errors.Join(os.Remove(blob), os.WriteFile(blob+incomplete, []byte(left), 0o644)); err != nil {
			t.Fatal(err)
		}
		mustPull(t, h, "org/tiny", Options{})
		if data, err := os.ReadFile(blob); err != nil || string(data) != weights {
			t.Errorf("of %d bytes, %.10q: %d bytes, %v", len(left), left, len(data), err)
		}
		if _, err := os.Stat(blob + incomplete); err == nil {
			t.Error("the incomplete file is still there")
		}
	}
	if err := os.WriteFile(blob, []byte("cut"), 0o644); err != nil { // by another program
		t.Fatal(err)
	}
	mustPull(t, h, "org/tiny", Options{})
	if data, _ := os.ReadFile(blob); string(data) != weights {
		t.Error("a blob of the wrong size stays")
	}
}

// TestTwo: of two that pull one model, one downloads.
func TestTwo(t *testing.T) {
	s := hubtest.New(t)
	s.Put("org/tiny", tiny())
	var sent atomic.Int32
	s.Serve = func(w http.ResponseWriter, r *http.Request, content string) bool {
		sent.Add(1)
		time.Sleep(20 * time.Millisecond)
		return false
	}
	first := newHub(t, s.URL)
	var wait sync.WaitGroup
	for range 4 {
		h := newHub(t, s.URL, "HF_HUB_CACHE", first.Cache)
		wait.Go(func() {
			if _, err := h.Pull(t.Context(), mustParse(t, "org/tiny"), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	same(t, "files sent", sent.Load(), 4)
	found, err := first.Find(mustParse(t, "org/tiny"), Weights)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "files", filesOf(t, found), "[LICENSE config.json model.safetensors tokenizer.json]")
}

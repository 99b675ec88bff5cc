// Package hubtest is a server of models for tests: it answers as Hugging Face's does, and
// misbehaves where a test says so.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Repo is a repository of models.
type Repo struct {
	Files  map[string]string // contents by path
	Large  int               // files from this size on are LFS files; 0: none is
	Gated  bool              // files need Token
	Commit string            // of main; by default the hash of the files

	listing []byte
}

// Server is a server of repositories.
type Server struct {
	*httptest.Server
	Token string // of the account that gated repositories accept
	// Serve may answer a request for a file itself; it returns whether it has.
	Serve func(w http.ResponseWriter, r *http.Request, content string) bool

	mu    sync.Mutex
	repos map[string]Repo
	log   []string
}

// New starts a server without repositories, which ends with the test.
func New(t testing.TB) *Server {
	s := Start()
	t.Cleanup(s.Close)
	return s
}

// Start is New without a test: Close ends the server.
func Start() *Server {
	s := &Server{repos: map[string]Repo{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	return s
}

// Put adds a repository, or replaces one: its main is another commit then. Every repository has the
// revisions main, v1 and its commit.
func (s *Server) Put(name string, r Repo) {
	if r.Commit == "" {
		h := sha1.New()
		for _, path := range slices.Sorted(maps.Keys(r.Files)) {
			fmt.Fprintf(h, "%s %x\n", path, sha1.Sum([]byte(r.Files[path])))
		}
		r.Commit = hex.EncodeToString(h.Sum(nil))
	}
	r.listing = r.list()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repos[name] = r
}

// Requests returns the requests so far, as PATH or PATH RANGE, and forgets them.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
	var name, rest string
	var repo Repo
	api, isAPI := strings.CutPrefix(r.URL.Path, "/api/models/")
	for n, candidate := range s.repos {
		if after, ok := strings.CutPrefix(strings.TrimPrefix(api, "/"), n+"/"); ok {
			name, rest, repo = n, after, candidate
		}
	}
	s.mu.Unlock()
	if name == "" {
		refuse(w, http.StatusUnauthorized, "RepoNotFound")
		return
	}
	if isAPI {
		if revision := strings.TrimPrefix(rest, "revision/"); revision != "main" && revision != "v1" && revision != repo.Commit {
			refuse(w, http.StatusNotFound, "RevisionNotFound")
			return
		}
		w.Write(repo.listing)
		return
	}
	path, found := strings.CutPrefix(rest, "resolve/"+repo.Commit+"/")
	content, ok := repo.Files[path]
	switch {
	case repo.Gated && r.Header.Get("Authorization") != "Bearer "+s.Token:
		refuse(w, http.StatusUnauthorized, "GatedRepo")
	case !found || !ok:
		refuse(w, http.StatusNotFound, "EntryNotFound")
	case s.Serve == nil || !s.Serve(w, r, content):
		Serve(w, r, content)
	}
}

// Serve sends a file as the server does, in ranges too.
func Serve(w http.ResponseWriter, r *http.Request, content string) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(content)))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
}

// list returns the answer to a request for the files.
func (r Repo) list() []byte {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type file struct {
		Path string `json:"rfilename"`
		Size int    `json:"size"`
		Blob string `json:"blobId"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	files := []file{}
	for _, path := range slices.Sorted(maps.Keys(r.Files)) {
		content := r.Files[path]
		f := file{Path: path, Size: len(content), Blob: fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content)))}
		if r.Large > 0 && len(content) >= r.Large {
			f.LFS = &lfs{fmt.Sprintf("%x", sha256.Sum256([]byte(content))), len(content)}
		}
		files = append(files, f)
	}
	text, err := json.Marshal(map[string]any{"sha": r.Commit, "siblings": files})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return text
}

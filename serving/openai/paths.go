package openai

import (
	"net/http"
	"slices"
	"strings"

	"github.com/krait-ml/krait/internal/program"
	"github.com/krait-ml/krait/serving/internal/api"
)

// modelPath is before the names of models.
const modelPath = "/v1/models/"

// notBuilt are the beginnings of paths of OpenAI's API that this server does not have, and why.
var notBuilt = map[string]string{
	"/v1/embeddings":        "embeddings are not computed; models here generate text",
	"/v1/batches":           "batches are not stored; send requests, which share steps",
	"/v1/files":             "files are not stored",
	"/v1/uploads":           "files are not stored",
	"/v1/vector_stores":     "files are not stored",
	"/v1/audio":             "models read and write text",
	"/v1/images":            "models read and write text",
	"/v1/videos":            "models read and write text",
	"/v1/realtime":          "models read and write text",
	"/v1/moderations":       "texts are not classified",
	"/v1/fine_tuning":       "models are not trained",
	"/v1/assistants":        "assistants are not stored; use /v1/responses",
	"/v1/threads":           "conversations are not stored; use /v1/responses",
	"/v1/conversations":     "conversations are not stored; send them in the input of /v1/responses",
	"/v1/responses/":        "answers are not stored",
	"/v1/rerank":            "texts are not ranked",
	"/v1/score":             "texts are not ranked",
	"/pooling":              "embeddings are not computed; models here generate text",
	"/v1/messages":          "use /v1/chat/completions",
	"/v1/chat/completions/": "answers are not stored",
}

// find returns the route of a path, and the name that metrics and the log have for it.
func (s *Server) find(path string) (name string, _ route, _ bool) {
	if to, ok := s.routes[path]; ok {
		return path, to, true
	}
	if strings.HasPrefix(path, modelPath) && path != modelPath {
		return modelPath, route{method: "GET", handle: s.model, described: described{about: "describes the served model", answer: modelCard{}}}, true
	}
	if to, ok := s.routes["/v1"+path]; ok { // as llama.cpp's
		return "/v1" + path, to, true
	}
	for begin, why := range notBuilt {
		if path == begin || strings.HasPrefix(path, strings.TrimSuffix(begin, "/")+"/") {
			return "other", route{handle: func(*response, *http.Request) error {
				return coded(http.StatusNotImplemented, "invalid_request_error", "not_implemented", "this server has no %s: %s", short(path), why)
			}}, true
		}
	}
	return "other", route{}, false
}

// share lets pages of Origins call the server, and reports whether it has answered a browser's
// question whether they may.
func (s *Server) share(w *response, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.o.Origins, origin) && !slices.Contains(s.o.Origins, "*") {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, "+warningHeader)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := r.Header.Get("Access-Control-Request-Headers"); len(asked) <= 1024 {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// card describes the served model.
func (s *Server) card() modelCard {
	return modelCard{ID: s.o.Name, Object: "model", Created: s.started.Unix(), Owner: "krait", Context: s.m.Engine().Context(), Ranks: s.m.Ranks()}
}

func (s *Server) models(w *response, _ *http.Request) error {
	api.WriteJSON(w, http.StatusOK, modelList{Object: "list", Data: []modelCard{s.card()}})
	return nil
}

// model answers /v1/models/NAME. Names may have slashes.
func (s *Server) model(w *response, r *http.Request) error {
	if err := s.checkModel(strings.TrimPrefix(r.URL.Path, modelPath)); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, s.card())
	return nil
}

// load answers /load.
func (s *Server) load(w *response, _ *http.Request) error {
	texts, _ := s.queue.Load()
	api.WriteJSON(w, http.StatusOK, load{texts})
	return nil
}

// version answers /version.
func (s *Server) version(w *response, _ *http.Request) error {
	api.WriteJSON(w, http.StatusOK, version{program.Version()})
	return nil
}

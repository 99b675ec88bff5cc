package route_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/serving/route"
)

// coded answers by an error of OpenAI's API.
func coded(status int, code string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"code": %q}}`, code)
	}
}

// TestBlame: a request that any server answers by 500 leaves no server out, and is asked twice only
// as often as the allowance says; neither does one that took too long, nor a server that drains.
func TestBlame(t *testing.T) {
	poison := func(w http.ResponseWriter, q *http.Request) {
		if body, _ := io.ReadAll(q.Body); strings.Contains(string(body), "poison") {
			w.WriteHeader(500)
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		out    bool
	}{
		"500": {poison, false}, "timeout": {coded(504, "timeout"), false}, "draining": {coded(503, "draining"), false},
		"closing": {coded(503, "closing"), false}, "proxy": {coded(504, ""), true}, "503": {coded(503, "broken"), true}, "502": {status(502), true},
	} {
		t.Run(name, func(t *testing.T) {
			list, h, r := fakes(t, 2, route.Options{EjectAfter: 3, EjectFor: time.Hour})
			list[0].do(c.answer)
			list[1].do(c.answer)
			const asked = 60
			for range asked {
				ask(t, h, prompt("poison"))
			}
			out := false
			for _, m := range r.Machines() {
				out = out || m.Ejected
			}
			if out != c.out {
				t.Errorf("left out: %v, want %v", out, c.out)
			}
			if n := list[0].asked.Load() + list[1].asked.Load(); name == "500" && n > asked+32+asked/10 {
				t.Errorf("%d requests that no server can answer were asked %d times", asked, n)
			}
		})
	}
}

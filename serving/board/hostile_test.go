package board_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/chromium"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/openai"
)

// hostile is what a model, or its name, might say to who shows it as markup.
const hostile = `<img src=x onerror="document.title='caught'"><script>document.title='caught'</script><svg onload=alert(1)>&lt;b&gt;</textarea>`

// TestHostile: what a model says is shown as it is, letter by letter, and so are its name and
// errors; and a script that gets in all the same may not run.
func TestHostile(t *testing.T) {
	chromium.Find(t)
	fails := false
	send := func(w http.ResponseWriter, v any) {
		data, _ := json.Marshal(v)
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", board.Page)
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"data": []any{map[string]any{"id": hostile}}})
	})
	mux.HandleFunc("/board", func(w http.ResponseWriter, r *http.Request) {
		w.Write(board.New(board.Options{}).JSON(func(s *board.State) { s.Model = hostile }, nil))
	})
	mux.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		if fails {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": hostile}})
			return
		}
		for _, c := range hostile { // cut anywhere
			send(w, map[string]any{"choices": []any{map[string]any{"delta": map[string]any{"reasoning_content": string(c)}}}})
		}
		for _, c := range hostile {
			send(w, map[string]any{"choices": []any{map[string]any{"delta": map[string]any{"content": string(c)}}}})
		}
		send(w, map[string]any{"error": map[string]any{"message": hostile}}) // and the stream ends
	})
	h := httptest.NewServer(mux)
	defer h.Close()
	b := chromium.Open(t, h.URL+"/", 1200, 800)
	b.Until(`document.getElementById("model").textContent !== "…"`)
	if got := b.Text(`document.getElementById("model").textContent`); got != hostile {
		t.Errorf("the model is called %s", got)
	}
	before := b.Number(`document.querySelectorAll("img, script, svg[onload]").length`)
	for i, want := range []string{hostile + hostile + hostile, hostile} {
		fails = i == 1
		ask(b, `<b onclick=x>`)
		b.Until(`document.querySelectorAll("#log .message").length === ` + fmt.Sprint(2*i+2) + ` && document.querySelector("#log .message:last-child .foot .again")`)
		got := b.Text(lastText)
		if i == 0 {
			got = strings.Replace(got, "the stream ended before the answer did", hostile, 1)
		}
		if got != want {
			t.Errorf("shown is %s", got)
		}
	}
	if after := b.Number(`document.querySelectorAll("img, script, svg[onload]").length`); after != before || !strings.HasPrefix(b.Text(`document.title`), "<img") {
		t.Errorf("%g elements are new", after-before)
	}
	b.Quiet(h.URL+"/", "status of 40")
	if got := b.Text(`(() => { try { document.getElementById("log").innerHTML = "<b>x</b>"; return "markup"; } catch (e) { return e.name; } })()`); got != "TypeError" {
		t.Errorf("a text becomes %s", got)
	}
	if got := b.Text(`(() => { const s = document.createElement("script"); try { s.text = "document.title = 'caught'"; document.body.append(s); } catch (e) { return e.name; } return document.title; })()`); got == "caught" {
		t.Error("a script runs that is not the page's")
	}
	if got := b.Text(`fetch("http://127.0.0.1:1/").then(() => "answered", (e) => e.name + e.message)`); !strings.Contains(got, "TypeError") {
		t.Errorf("another server is asked: %s", got)
	}
}

// TestKey: where the server has keys the page asks for one, sends it, and shows nothing before.
func TestKey(t *testing.T) {
	chromium.Find(t)
	sum := sha256.Sum256([]byte("sesame"))
	keys, err := openai.ReadKeys(strings.NewReader(fmt.Sprintf("ann %x\n", sum)))
	if err != nil {
		t.Fatal(err)
	}
	_, h := serving(t, openai.Options{Keys: keys})
	b := chromium.Open(t, h.URL+"/", 1200, 800)
	b.Until(`document.getElementById("ask").open`)
	if got := b.Text(`document.getElementById("status").textContent + document.getElementById("slots").children.length`); got != "key required0" {
		t.Errorf("without a key it says %s", got)
	}
	b.Eval(`document.getElementById("ask-key").focus()`, nil)
	b.Write("open")
	b.Press("Enter")
	b.Until(`document.getElementById("ask").open && document.getElementById("ask-why").textContent.includes("unknown API key")`)
	b.Eval(`document.getElementById("ask-key").focus()`, nil)
	b.Write("sesame")
	b.Press("Enter")
	b.Until(`document.getElementById("status").textContent === "ready" && document.getElementById("slots").children.length === 4`)
	if !b.Yes(`!document.getElementById("ask").open && Object.keys(localStorage).every((k) => !localStorage[k].includes("sesame")) && !document.documentElement.outerHTML.includes("sesame")`) {
		t.Error("the key is kept, or shown")
	}
	b.Quiet(h.URL+"/", "status of 40")
}

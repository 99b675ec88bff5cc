package board_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/krait-ml/krait/internal/chromium"
	"github.com/krait-ml/krait/serving/board"
)

// scripted is a page whose model answers with a text, cut into pieces, and records what is asked.
func scripted(t *testing.T, models []string, piece int, text *string) (*chromium.Browser, *[]map[string]any) {
	t.Helper()
	chromium.Find(t)
	asked := &[]map[string]any{}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", board.Page)
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, m := range models {
			list = append(list, map[string]any{"id": m})
		}
		json.NewEncoder(w).Encode(map[string]any{"data": list})
	})
	mux.HandleFunc("/board", func(w http.ResponseWriter, r *http.Request) {
		w.Write(board.New(board.Options{}).JSON(func(*board.State) {}, nil))
	})
	mux.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		json.NewDecoder(r.Body).Decode(&body)
		*asked = append(*asked, body)
		letters := []rune(*text)
		for len(letters) > 0 {
			n := min(piece, len(letters))
			data, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"delta": map[string]any{"content": string(letters[:n])}}}})
			fmt.Fprintf(w, "data: %s\n\n", data)
			w.(http.Flusher).Flush()
			letters = letters[n:]
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	b := chromium.Open(t, h.URL+"/", 1200, 800)
	b.Until(`document.getElementById("status").textContent === "ready"`)
	return b, asked
}

// answered asks for the text, and returns the elements that show it.
func answered(b *chromium.Browser) string {
	b.Eval(`document.activeElement.blur()`, nil)
	b.Press("n")
	ask(b, "x")
	b.Until(`document.querySelector("#log .assistant .again")`)
	return b.Text(`document.querySelector("#log .assistant .text").innerHTML`)
}

// TestMarkdown: answers are shown by their marks, however the stream cuts them.
func TestMarkdown(t *testing.T) {
	var text string
	b, _ := scripted(t, []string{"m"}, 3, &text)
	copyButton := `<button type="button" class="link">Copy</button>`
	for _, c := range [][2]string{
		{"One\ntwo\n\nthree", "<p>One<br>two</p><p>three</p>"},
		{"**bold** *it* _it_ `a*b*` ~~no~~ snake_case_name 2*3*4", "<p><strong>bold</strong> <em>it</em> <em>it</em> <code>a*b*</code> <del>no</del> snake_case_name 2<em>3</em>4</p>"},
		{"# Head #\n---\n> quoted\n> **more**", "<h3>Head</h3><hr><blockquote><p>quoted<br><strong>more</strong></p></blockquote>"},
		{"- a\n- b\n  - c\n\n3. x\n4. y", `<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start="3"><li>x</li><li>y</li></ol>`},
		{"```go\nx := `a`\n\n# no\n```\nafter", `<figure><figcaption class="muted">go` + copyButton + `</figcaption><pre tabindex="0"><code>x := ` + "`a`\n\n# no" + `</code></pre></figure><p>after</p>`},
		{"|a|b|c|\n|---|:-:|-:|\n|1|`2`|3|4", `<div class="table" tabindex="0"><table><thead><tr><th>a</th><th class="center">b</th><th class="right">c</th></tr></thead>` +
			`<tbody><tr><td>1</td><td class="center"><code>2</code></td><td class="right">3</td><td>4</td></tr></tbody></table></div>`},
		{"[k](https://a.example/b) \\*no\\*", `<p><a href="https://a.example/b" target="_blank" rel="noopener noreferrer nofollow" title="https://a.example/b">k</a> *no*</p>`},
		{"```\nno end", `<figure><figcaption class="muted">code` + copyButton + `</figcaption><pre tabindex="0"><code>no end</code></pre></figure>`},
	} {
		text = c[0]
		if got := answered(b); got != c[1] {
			t.Errorf("%q is shown as\n%s\nwant\n%s", c[0], got, c[1])
		}
	}
	text = "**plain**"
	set(b, "format", "plain")
	if got := answered(b); got != text {
		t.Errorf("as plain text it is %s", got)
	}
}

// TestHostileMarkdown: no text of a model makes an element that runs or loads anything, or a link
// other than to http and https; and none takes long.
func TestHostileMarkdown(t *testing.T) {
	var text string
	b, _ := scripted(t, []string{"m"}, 7, &text)
	for _, text = range []string{
		hostile, "# " + hostile, "- " + hostile + "\n> " + hostile, "```\n" + hostile + "\n```", "`" + hostile + "`", "|" + hostile + "|b|\n|-|-|\n|" + hostile + "|c|",
		"[x](javascript:alert(1)) [x](JaVaScRiPt:alert`1`) [x](\tjavascript:alert`1`) [x](data:text/html,<script>) [x](vbscript:x) [x](file:///etc/passwd) [x](//evil.example/) [x](/v1/models) [x](blob:http://a/b)",
		"![x](https://evil.example/pixel.png) ![x](javascript:alert`1`) <https://user:pass@evil.example/>", "[x](https://user:secret@evil.example/)",
		"[<img src=x onerror=document.title='caught'>](https://a.example/\"onmouseover=document.title='caught')", "```\"><script>document.title='caught'</script>\nx\n```",
		"<style>*{display:none}</style><iframe src=//evil.example></iframe><base href=//evil.example/><meta http-equiv=refresh content=0>",
		"[x](https://a.example/\u202egnp.exe) \u2028<b>\u0000</b>",
	} {
		got := answered(b)
		if !b.Yes(`document.title === "m · krait serve" && document.querySelectorAll("#log img, #log script, #log iframe, #log style, #log base, #log meta, #log svg, #log object, #log form, #log input").length === 0`) {
			t.Fatalf("%q becomes %s", text, got)
		}
		if !b.Yes(`[...document.querySelectorAll("#log *")].every((e) => [...e.attributes].every((a) => !a.name.startsWith("on") && a.name !== "style" && a.name !== "src"))`) {
			t.Errorf("%q has attributes that run or load: %s", text, got)
		}
		if bad := b.Text(`[...document.querySelectorAll("#log a")].filter((a) => !/^https?:$/.test(a.protocol) || a.username || a.rel !== "noopener noreferrer nofollow" || a.host === location.host).map((a) => a.outerHTML).join()`); bad != "" {
			t.Errorf("%q has the link %s", text, bad)
		}
	}
	for _, text = range []string{strings.Repeat("*", 20000), strings.Repeat("[", 20000), strings.Repeat("`a", 10000), strings.Repeat("> ", 5000) + "x", strings.Repeat("**a*", 5000), strings.Repeat("_a ", 8000),
		strings.Repeat("- ", 5000) + "x", strings.Repeat("|-", 10000) + "\n" + strings.Repeat("|-", 10000), strings.Repeat("[a](b", 5000), strings.Repeat("~~a", 8000), strings.Repeat("x\n\n", 8000), "https://" + strings.Repeat("a(", 10000)} {
		text = text[:min(len(text), 20000)]
		b.Eval(`window.took = 0; window.was = performance.now()`, nil)
		answered(b)
		if took := b.Number(`performance.now() - window.was`); took > 20000 {
			t.Errorf("%.20q… takes %.0f ms", text, took)
		}
	}
}

// TestModels: of several models one is chosen, asked, and remembered.
func TestModels(t *testing.T) {
	text := "yes"
	b, asked := scripted(t, []string{"first", "second"}, 9, &text)
	answered(b)
	set(b, "models", "second")
	answered(b)
	if len(*asked) != 2 || (*asked)[0]["model"] != "first" || (*asked)[1]["model"] != "second" {
		t.Errorf("asked is %v", *asked)
	}
	b.Eval(`location.reload()`, nil)
	b.Until(`document.getElementById("models") && document.getElementById("models").value === "second" && !document.getElementById("models").hidden`)
}

package board_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/internal/chromium"
	"github.com/krait-ml/krait/serving/board"
	"github.com/krait-ml/krait/serving/openai"
	"github.com/krait-ml/krait/visualize"
)

// serving serves the embedded model on 2 ranks, with its page.
func serving(t *testing.T, o openai.Options) (*openai.Server, *httptest.Server) {
	t.Helper()
	b := board.New(board.Options{Work: visualize.Work})
	m, err := krait.Embedded(krait.Options{Slots: 4, PrefixCache: 8 << 20, Sharding: krait.Sharding{Ranks: 2},
		Batches: b.Batch, Record: b.Record, Recording: b.Watched})
	if err != nil {
		t.Fatal(err)
	}
	o.Board = b
	s, err := openai.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, h
}

// scheme lets pages see that the system is dark or light, and wants no motion.
func scheme(b *chromium.Browser, name string) {
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": name}, map[string]any{"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// picture keeps what the window shows, where KRAIT_PICTURES says in which folder.
func picture(b *chromium.Browser, name string) {
	if dir := os.Getenv("KRAIT_PICTURES"); dir != "" {
		b.Eval("new Promise((r) => setTimeout(r, 700))", nil)
		b.Shoot(dir + "/" + name + ".png")
	}
}

// set writes a setting as a hand does.
func set(b *chromium.Browser, id, value string) {
	b.Eval(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("input")); e.dispatchEvent(new Event("change")); })()`, id, value), nil)
}

// ask writes a message, and sends it.
func ask(b *chromium.Browser, text string) {
	b.Eval(`document.getElementById("prompt").focus()`, nil)
	b.Write(text)
	b.Press("Enter")
}

const lastText = `(document.querySelector("#log .message.assistant:last-child .text") || {}).textContent`

// TestPage: a chat, its settings and its stop button; what the board shows is what is; keys of
// the keyboard; light, dark and the width of a phone.
func TestPage(t *testing.T) {
	chromium.Find(t)
	s, h := serving(t, openai.Options{})
	b := chromium.Open(t, h.URL+"/", 1440, 900)
	scheme(b, "light")
	b.Until(`document.getElementById("status").textContent === "ready"`)
	if got := b.Text(`document.getElementById("model").textContent + document.title`); got != "tiny-mambatiny-mamba · krait serve" {
		t.Errorf("the model is called %s", got)
	}
	t.Run("chat", func(t *testing.T) { chats(b.In(t)) })
	t.Run("stop", func(t *testing.T) { stops(b.In(t), s) })
	t.Run("settings", func(t *testing.T) { sets(b.In(t)) })
	t.Run("board", func(t *testing.T) { shows(b.In(t), s, h.URL) })
	t.Run("keyboard", func(t *testing.T) { keyboard(b.In(t)) })
	t.Run("names", func(t *testing.T) { names(b.In(t)) })
	t.Run("reload", func(t *testing.T) { reloads(b.In(t), h.URL) })
	t.Run("phone", func(t *testing.T) { phone(b.In(t)) })
	b.In(t).Quiet(h.URL + "/")
}

// chats sends a message by the keyboard, and looks at the answer.
func chats(b *chromium.Browser) {
	set(b, "temperature", "0")
	set(b, "max_tokens", "60")
	ask(b, "In the beginning")
	b.Until(`document.querySelector("#log .assistant .foot .again")`)
	if got := b.Text(`document.querySelector("#log .user .text").textContent`); got != "In the beginning" {
		b.T.Errorf("the message is %q", got)
	}
	if got := b.Text(lastText); len(got) < 20 {
		b.T.Errorf("the answer is %q", got)
	}
	foot := b.Text(`document.querySelector("#log .assistant .foot").textContent`)
	for _, want := range []string{"ended by max tokens", "60 tokens", "prompt of ", "first token after "} {
		if !strings.Contains(foot, want) {
			b.T.Errorf("%q does not say %s", foot, want)
		}
	}
	first := b.Text(lastText)
	b.Click("#log .again")
	b.Until(`document.querySelector("#log .assistant[aria-busy]") === null && document.querySelectorAll("#log .message").length === 2 && document.querySelector("#log .foot .again")`)
	if got := b.Text(lastText); got != first {
		b.T.Errorf("at temperature 0 it says %q, then %q", first, got)
	}
	ask(b, "And God said")
	b.Until(`document.querySelectorAll("#log .message").length === 4 && document.querySelector("#log .message:last-child .again")`)
	if n := b.Number(`[...document.querySelectorAll("#log .again")].filter((e) => !e.hidden).length`); n != 1 {
		b.T.Errorf("%g answers can be had again", n)
	}
}

// stops ends an answer by the button, and one by the keyboard; the server has nothing to do then.
func stops(b *chromium.Browser, s *openai.Server) {
	set(b, "max_tokens", "400000")
	for _, how := range []func(){func() { b.Click("#stop") }, func() { b.Press("Escape") }} {
		ask(b, "Again")
		b.Until(`document.querySelector("#log .message:last-child[aria-busy]") && ` + lastText + `.length > 40`)
		if !b.Yes(`document.getElementById("send").hidden && !document.getElementById("stop").hidden`) {
			b.T.Error("there is no stop button while an answer comes")
		}
		how()
		b.Until(`!document.querySelector("#log [aria-busy]")`)
		text := b.Text(lastText)
		if foot := b.Text(`document.querySelector("#log .message:last-child .foot").textContent`); !strings.HasPrefix(foot, "stopped") {
			b.T.Errorf("below it says %q", foot)
		}
		for deadline := time.Now().Add(10 * time.Second); s.Load().Running > 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				b.T.Fatal("the server goes on with what was stopped")
			}
		}
		b.Eval("new Promise((r) => setTimeout(r, 100))", nil)
		if got := b.Text(lastText); got != text || !b.Yes(`document.getElementById("stop").hidden && !document.getElementById("send").hidden`) {
			b.T.Errorf("the text goes on after it was stopped: %d characters, then %d", len(text), len(got))
		}
	}
}

// sets looks at what requests are asked with.
func sets(b *chromium.Browser) {
	b.Eval(`window.asked = []; window.fetched = window.fetch; window.fetch = (path, o) => { if (o && o.body) window.asked.push(path, JSON.parse(o.body)); return window.fetched(path, o); }`, nil)
	defer b.Eval(`window.fetch = window.fetched`, nil)
	for id, value := range map[string]string{"temperature": "0.5", "top_p": "0.9", "max_tokens": "5", "seed": "7", "system": "Be brief."} {
		set(b, id, value)
	}
	b.Press("Escape", "n")
	ask(b, "Hello")
	b.Until(`document.querySelectorAll("#log .message").length === 2 && document.querySelector("#log .message:last-child .again")`)
	want := `["/v1/chat/completions",{"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0.9,"max_tokens":5,"seed":7,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}]`
	if got := b.Text(`JSON.stringify(window.asked)`); got != want {
		b.T.Errorf("asked is %s", got)
	}
	set(b, "as", "text")
	set(b, "temperature", "9") // is no temperature, and not taken
	set(b, "top_p", "")
	b.Eval(`window.asked = []`, nil)
	ask(b, "In the")
	b.Until(`document.querySelectorAll("#log .message").length === 4 && document.querySelector("#log .message:last-child .again")`)
	want = `["/v1/completions",{"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"max_tokens":5,"seed":7,"prompt":"In the"}]`
	if got := b.Text(`JSON.stringify(window.asked)`); got != want {
		b.T.Errorf("asked is %s", got)
	}
	if !b.Yes(`document.getElementById("temperature").getAttribute("aria-invalid") === "true"`) {
		b.T.Error("a temperature of 9 is not marked")
	}
	for _, id := range []string{"temperature", "seed", "system"} {
		set(b, id, "")
	}
	set(b, "as", "chat")
	set(b, "max_tokens", "80")
}

// shows lets several texts be generated, and compares the board with the server.
func shows(b *chromium.Browser, s *openai.Server, url string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for i := range 6 {
		go complete(ctx, url, strings.Repeat(fmt.Sprintf("In the beginning God created the heaven and the earth. %d ", i/2), 40), 100000)
	}
	b.Until(`document.getElementById("card-running").textContent === "4 of 4" && document.getElementById("card-waiting").textContent === "2"`)
	b.Until(`document.querySelectorAll("#slots .writes").length === 4`)
	b.Until(`Number(document.getElementById("card-rate").textContent.replaceAll(",", "")) > 0 && document.getElementById("ranks").dataset.ranks === "2" && Number(document.getElementById("steps").dataset.steps) > 10`)
	if got := b.Text(`document.getElementById("steps").getAttribute("aria-label")`); !strings.Contains(got, "4 decode tokens") {
		b.T.Errorf("of steps it says %s", got)
	}
	if got := b.Text(`document.getElementById("ranks").getAttribute("aria-label")`); !strings.Contains(got, "2 ranks") || strings.Contains(got, "busy 0 %, 0 %") {
		b.T.Errorf("of ranks it says %s", got)
	}
	if !b.Yes(`document.querySelectorAll("#tree .node").length > 2 && document.querySelector("#tree svg").getAttribute("aria-label").includes("nodes")`) {
		b.T.Error("there is no tree")
	}
	stop()
	b.Until(`document.getElementById("card-running").textContent === "0 of 4"`)
	if os.Getenv("KRAIT_PICTURES") != "" {
		pictures(b, url)
	}
	b.Until(`document.getElementById("card-running").textContent === "0 of 4" && document.querySelectorAll("#slots .free").length === 4`)
	if s.Load().Running != 0 {
		b.T.Error("the board says that nothing runs, and it does")
	}
	b.Until(`document.getElementById("card-hits").textContent !== "–"`)
	b.Click("#pause")
	asof := b.Text(`document.getElementById("board").dataset.asof`)
	b.Eval("new Promise((r) => setTimeout(r, 1500))", nil)
	if got := b.Text(`document.getElementById("board").dataset.asof`); got != asof {
		b.T.Error("a board that stands still goes on")
	}
	b.Click("#pause")
	b.Until(`document.getElementById("board").dataset.asof !== "` + asof + `"`)
}

// complete asks for a text, and reads it to its end.
func complete(ctx context.Context, url, prompt string, tokens int) {
	body, _ := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": tokens, "stream": true})
	r, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	if a, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
}

// pictures are of a chat while clients come and go, whose prompts begin alike.
func pictures(b *chromium.Browser, url string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for i := range 5 {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				complete(ctx, url, strings.Repeat("In the beginning God created the heaven and the earth. ", 1+i)+strings.Repeat(fmt.Sprintf("And God said %d. ", n%4), 10*i+n%3), 60+20*i)
			}
		}()
	}
	set(b, "max_tokens", "160")
	b.Press("Escape", "n")
	for i, text := range []string{"In the beginning God created", "And the LORD said unto Moses"} {
		ask(b, text)
		b.Until(fmt.Sprintf(`document.querySelectorAll("#log .message").length === %d && document.querySelector("#log .message:last-child .again")`, 2*i+2))
	}
	set(b, "max_tokens", "400000")
	ask(b, "And it came to pass")
	b.Eval("new Promise((r) => setTimeout(r, 8000))", nil)
	for _, name := range []string{"light", "dark"} {
		scheme(b, name)
		picture(b, name)
	}
	scheme(b, "light")
	b.Eval(`document.getElementById("tree").scrollIntoView({ block: "end" })`, nil)
	openSettings(b)
	picture(b, "settings")
	openSettings(b)
	b.Size(390, 844)
	for _, view := range []string{"chat", "board"} {
		b.Eval(`document.getElementById("tab-`+view+`").click()`, nil)
		b.Eval("new Promise((r) => setTimeout(r, 2500))", nil)
		picture(b, "phone-live-"+view)
	}
	b.Size(1440, 900)
	stop()
	b.Press("Escape")
	set(b, "max_tokens", "80")
	b.Until(`document.getElementById("card-running").textContent === "0 of 4"`)
}

func openSettings(b *chromium.Browser) { b.Eval(`document.getElementById("toggle").click()`, nil) }

// keyboard does what there are keys for.
func keyboard(b *chromium.Browser) {
	b.Press("Escape", "t")
	if !b.Yes(`document.documentElement.classList.contains("dark")`) {
		b.T.Error("t leaves it light")
	}
	b.Press("t", "s")
	if !b.Yes(`!document.getElementById("settings").hidden && document.activeElement.id === "as" && document.getElementById("toggle").getAttribute("aria-expanded") === "true"`) {
		b.T.Error("s does not open the settings")
	}
	b.Press("Escape", "s", "p")
	if !b.Yes(`document.getElementById("settings").hidden && document.getElementById("pause").getAttribute("aria-pressed") === "true"`) {
		b.T.Error("s does not close the settings, or p not pause")
	}
	b.Press("p", "?")
	if !b.Yes(`document.getElementById("help").open`) {
		b.T.Error("? shows no help")
	}
	b.Press("Escape", "/")
	if !b.Yes(`document.activeElement.id === "prompt"`) {
		b.T.Error("/ does not lead to the message")
	}
	b.Press("Escape", "n")
	if !b.Yes(`document.querySelector("#log .empty") && document.activeElement.id === "prompt"`) {
		b.T.Error("n begins no conversation")
	}
}

// reloads: a conversation outlives a reload, an answer in progress as far as it came, and is gone
// after a new one is begun, or where the browser is not to keep it.
func reloads(b *chromium.Browser, url string) {
	load := func() {
		b.Call("Page.navigate", map[string]any{"url": "about:blank"}, nil)
		b.Until(`location.href === "about:blank"`)
		b.Call("Page.navigate", map[string]any{"url": url + "/"}, nil)
		b.Until(`document.readyState === "complete" && document.getElementById("status") && document.getElementById("status").textContent === "ready"`)
	}
	b.Press("Escape", "n")
	set(b, "max_tokens", "20")
	ask(b, "In the beginning")
	b.Until(`document.querySelector("#log .assistant .foot .again")`)
	before := b.Text(`document.getElementById("log").innerText`)
	load()
	if got := b.Text(`document.getElementById("log").innerText`); got != before {
		b.T.Errorf("after a reload it is\n%s\nand was\n%s", got, before)
	}
	ask(b, "And God said")
	b.Until(`document.querySelectorAll("#log .message").length === 4 && document.querySelector("#log .message:last-child .again")`)
	set(b, "max_tokens", "400000")
	b.Click("#log .message:last-child .again")
	b.Until(`document.querySelector("#log .message:last-child[aria-busy]") && ` + lastText + `.length > 40`)
	load()
	if got := b.Number(`document.querySelectorAll("#log .message").length`); got != 4 || !b.Yes(lastText+`.length > 40 && document.querySelector("#log .message:last-child .foot").textContent.startsWith("interrupted")`) {
		b.T.Errorf("of an answer in progress a reload leaves %g messages, the last is %s", got, b.Text(lastText))
	}
	set(b, "keep", "no")
	load()
	if got := b.Number(`document.querySelectorAll("#log .message").length`); got != 0 {
		b.T.Errorf("%g messages are kept that were not to be", got)
	}
	set(b, "keep", "browser")
	set(b, "max_tokens", "20")
	ask(b, "In the beginning")
	b.Until(`document.querySelector("#log .assistant .foot .again")`)
	b.Press("Escape", "Escape")
	b.Eval(`document.activeElement.blur()`, nil)
	b.Press("n")
	load()
	if !b.Yes(`document.querySelector("#log .empty")`) {
		b.T.Error("a new conversation begins with the old one after a reload")
	}
	set(b, "max_tokens", "80")
}

// names: whatever can be used has a name, as those hear it who do not see the page.
func names(b *chromium.Browser) {
	b.Press("Escape", "s")
	defer b.Press("Escape", "s")
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.Call("Accessibility.getFullAXTree", nil, &tree)
	named, seen := map[string]bool{}, 0
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		switch role {
		case "button", "textbox", "spinbutton", "combobox", "tab", "log", "region", "image", "dialog":
			seen++
			if !n.Ignored && strings.TrimSpace(name) == "" {
				b.T.Errorf("a %s has no name", role)
			}
			named[role+" "+name] = true
		}
	}
	for _, want := range []string{"textbox Message", "button Send", "spinbutton Temperature", "spinbutton Top p", "spinbutton Top k", "combobox Answers as", "combobox Keep the chat", "spinbutton Max tokens", "spinbutton Seed", "textbox System prompt", "textbox Key", "combobox Mode", "log Conversation", "region Chat", "region Board"} {
		if !named[want] {
			b.T.Errorf("there is no %s among %d: %v", want, seen, named)
		}
	}
}

// phone is narrow: one view at a time, nothing wider than the window, and what is to be touched
// large enough.
func phone(b *chromium.Browser) {
	b.Size(390, 844)
	defer b.Size(1440, 900)
	b.Press("Escape")
	b.Eval(`document.activeElement.blur()`, nil)
	for _, view := range []string{"2", "1"} {
		b.Press(view)
		b.Eval("new Promise((r) => setTimeout(r, 100))", nil)
		if got := b.Text(`["chat", "board"].filter((v) => document.getElementById(v).offsetParent).join() + " " + (document.documentElement.scrollWidth <= 390)`); got != map[string]string{"1": "chat true", "2": "board true"}[view] {
			b.T.Errorf("view %s is %s", view, got)
		}
		picture(b, "phone-"+view)
		scheme(b, "dark")
		picture(b, "phone-dark-"+view)
		scheme(b, "light")
	}
	b.Press("s")
	if got := b.Text(`[...document.querySelectorAll("button, input, select")].filter((e) => e.offsetParent && !e.classList.contains("link") && e.getBoundingClientRect().height < 32).map((e) => e.id || e.textContent).join()`); got != "" {
		b.T.Errorf("too low to be touched: %s", got)
	}
	if !b.Yes(`document.documentElement.scrollWidth <= 390 && document.getElementById("send").getBoundingClientRect().bottom <= 844`) {
		b.T.Error("the settings do not fit")
	}
	picture(b, "phone-settings")
	b.Press("Escape", "s")
}

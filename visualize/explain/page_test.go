package explain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/krait-ml/krait/checkpoint/synth"
	"github.com/krait-ml/krait/graph"
	"github.com/krait-ml/krait/internal/chromium"
	"github.com/krait-ml/krait/visualize/explain"
)

// opened is the page of an input in a browser.
func opened(t *testing.T, in *explain.Input, width, height int) (*chromium.Browser, string) {
	t.Helper()
	chromium.Find(t)
	var html bytes.Buffer
	err := explain.Page(&html, in)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	address := "file://" + filepath.ToSlash(file)
	return chromium.Open(t, address, width, height), address
}

// names are those of all values of all stages.
func names(in *explain.Input) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in.Stages {
		for _, n := range s.Nodes {
			for _, v := range n.Results {
				if !seen[v.Name] {
					seen[v.Name] = true
					out = append(out, v.Name)
				}
			}
		}
	}
	return out
}

// TestPage uses the page of a hybrid on 2 ranks as its readers do.
func TestPage(t *testing.T) {
	in := input(t, golden(t, "jamba"), 2, "channel", 2, 33)
	in.Runs[0].Links = []explain.Link{{Axes: "tp", Level: "within a node", Sent: 1 << 10}, {Axes: "tp", Level: "between nodes", Sent: 2 << 10, Seconds: 3e-3}}
	in.Runs[1].Links = []explain.Link{{Axes: "tp", Level: "between nodes", Sent: 4 << 10, Seconds: 5e-3}}
	b, address := opened(t, in, 1440, 900)
	t.Run("overview", func(t *testing.T) {
		b := b.In(t)
		if n := b.Number(`document.querySelectorAll("main .strip button").length`); int(n) != len(in.Stages[0].Blocks()) {
			t.Errorf("%g layers", n)
		}
		if want := fmt.Sprintf("%d collectives", in.Certificate.Collectives); !strings.Contains(b.Text(`document.querySelector("main").innerText`), want) {
			t.Errorf("the overview does not say %s", want)
		}
	})
	t.Run("passes", func(t *testing.T) { passView(b.In(t), in) })
	t.Run("fold", func(t *testing.T) { fold(b.In(t)) })
	t.Run("search", func(t *testing.T) { search(b.In(t), in) })
	t.Run("collectives", func(t *testing.T) { collectives(b.In(t), in) })
	t.Run("timeline", func(t *testing.T) { timeline(b.In(t)) })
	t.Run("memory", func(t *testing.T) { memory(b.In(t)) })
	t.Run("proof", func(t *testing.T) {
		b := b.In(t)
		b.Press("6")
		if text := b.Text(`document.querySelector("main pre").textContent`); text != in.Certificate.String() {
			t.Errorf("the certificate is\n%s", text)
		}
	})
	t.Run("theme", func(t *testing.T) { theme(b.In(t)) })
	t.Run("address", func(t *testing.T) {
		b := b.In(t)
		name := "layers.1.mixer.out_proj"
		b.Eval(`location.hash = "#view=timeline&run=1&node=`+name+`"`, nil)
		b.Until(`document.querySelector("#detail h2") && document.querySelector("#detail h2").textContent === "` + name + `"`)
		if got := b.Text(`document.querySelector("#tabs [aria-selected=true]").textContent + document.querySelector("main h2").textContent`); !strings.HasPrefix(got, "Timeline") || !strings.HasSuffix(got, "decode") {
			t.Errorf("the address leads to %s", got)
		}
	})
	b.Quiet(address)
}

// passView goes through all passes with the keyboard: what changed is marked, node by node.
func passView(b *chromium.Browser, in *explain.Input) {
	_, d := page(b.T, in)
	b.Press("2")
	b.Click(`nav button[data-pass="0"]`)
	for i := 1; i < len(d.Stages); i++ {
		b.Press("j")
		if got := b.Text(`document.querySelector("main .head h2").textContent`); got != in.Stages[i].Pass {
			b.T.Fatalf("j leads to %s in place of %s", got, in.Stages[i].Pass)
		}
		b.Press("f") // every layer by itself
		b.Eval(`document.querySelectorAll("details.group").forEach((d) => { d.open = true; })`, nil)
		b.Eval(`new Promise((r) => setTimeout(r, 50))`, nil)
		diff := d.Stages[i].Diff
		for selector, want := range map[string]int{".ir.add": diff.Added, ".line > .ir.cut": diff.Removed, ".line.change": diff.Changed} {
			if got := b.Number(fmt.Sprintf("document.querySelectorAll(%q).length", "main "+selector)); int(got) != want {
				b.T.Errorf("%s: %g of %s are marked, and %d changed so", in.Stages[i].Pass, got, selector, want)
			}
		}
		if diff.Changed > 0 && !b.Yes(`document.querySelector("main .line.change em")`) {
			b.T.Errorf("%s: nothing says what changed in a line", in.Stages[i].Pass)
		}
		b.Press("f")
	}
	b.Press("k")
	if got := b.Text(`document.querySelector("main .head h2").textContent`); got != in.Stages[len(in.Stages)-2].Pass {
		b.T.Errorf("k leads to %s", got)
	}
	b.Press("d")
	if !b.Yes(`document.querySelectorAll("main svg .nodebox").length > 20 && document.querySelector("main svg .nodebox.collective.added, main svg .nodebox.changed")`) {
		b.T.Error("the drawing has no marks")
	}
	b.Press("d", "c")
	if !b.Yes(`document.querySelector("main button.fold")`) {
		b.T.Error("c folds nothing away")
	}
	b.Press("c")
}

// fold looks at equal layers: one of them, all of them, and another one.
func fold(b *chromium.Browser) {
	b.Click(`nav button[data-pass="1"]`)
	groups := b.Number(`document.querySelectorAll("details.group").length`)
	layers := b.Number(`document.querySelectorAll("main .strip button").length`)
	if groups >= layers+2 {
		b.T.Errorf("%g groups of %g layers: nothing is folded", groups, layers)
	}
	b.Click(`[data-fold]`)
	if n := b.Number(`document.querySelectorAll("details.group").length`); n <= groups {
		b.T.Errorf("%g groups after unfolding one of %g", n, groups)
	}
	b.Click(`[data-fold]`)
	if n := b.Number(`document.querySelectorAll("details.group").length`); n != groups {
		b.T.Errorf("%g groups after folding again, in place of %g", n, groups)
	}
	b.Click(`main .strip button:nth-child(1)`)
	b.Press("]")
	if got := b.Text(`document.querySelector("#layer").value`); got != "1" {
		b.T.Errorf("] leads from layer 0 to %s", got)
	}
	b.Press("ArrowLeft")
	if got := b.Text(`document.querySelector("#layer").value`); got != "0" {
		b.T.Errorf("the arrow leads from layer 1 to %s", got)
	}
}

// search finds each value by its name, and goes there.
func search(b *chromium.Browser, in *explain.Input) {
	found(b, names(in))
	b.Press("/")
	b.Write("layers.1 out_proj_sum")
	b.Press("ArrowDown", "ArrowUp", "Enter")
	name := b.Text(`document.querySelector("#detail h2").textContent`)
	if !strings.HasPrefix(name, "layers.1.") || !strings.HasSuffix(name, "out_proj_sum") {
		b.T.Errorf("the search goes to %s", name)
	}
	if !b.Yes(`document.querySelector('.line.chosen[data-node="` + name + `"]').getBoundingClientRect().top < innerHeight`) {
		b.T.Errorf("%s is not to be seen", name)
	}
	if text := b.Text(`document.getElementById("detail").innerText`); !strings.Contains(text, "adds up what ranks own") || !strings.Contains(text, "a rank sends") {
		b.T.Errorf("of the collective is said\n%s", text)
	}
	b.Press("Escape")
	if b.Yes(`!document.getElementById("detail").hidden`) {
		b.T.Error("Escape does not close it")
	}
	b.Press("/")
	b.Write("no such thing")
	if got := b.Text(`document.getElementById("found").innerText`); !strings.Contains(got, "No match") {
		b.T.Errorf("of nothing is said %q", got)
	}
	b.Press("Escape")
}

// found searches for each name, of which the first hit must be it.
func found(b *chromium.Browser, names []string) {
	b.T.Helper()
	list, err := json.Marshal(names)
	if err != nil {
		b.T.Fatal(err)
	}
	if missing := b.Text(`(() => { const q = document.getElementById("query"), missing = [];
		for (const n of ` + string(list) + `) { q.value = n; q.dispatchEvent(new Event("input")); const h = document.querySelector("#found .hit"); if (!h || h.dataset.name !== n) missing.push(n); }
		q.value = ""; q.dispatchEvent(new Event("input")); return missing.join(" "); })()`); missing != "" {
		b.T.Errorf("not found: %s", missing)
	}
}

// collectives lists all, with those of equal layers in one line.
func collectives(b *chromium.Browser, in *explain.Input) {
	b.Press("3")
	n := b.Number(`document.querySelectorAll("tr.c").length`)
	if b.Eval(`document.querySelectorAll("tr.c button").forEach((e) => e.click())`, nil); b.Number(`document.querySelectorAll("tr.c:not([hidden])").length`) < n {
		b.T.Error("lines do not open")
	}
	for _, c := range in.Certificate.Parts[0].Collectives {
		if text := b.Text(`document.querySelector("main").innerText`); !strings.Contains(text, c.Values[0]) {
			b.T.Errorf("nothing is said of %s", c.Values[0])
		}
	}
	links := b.Text(`[...document.querySelectorAll(".links tbody tr")].map((r) => [...r.children].map((x) => x.textContent).join("|")).join("\n")`)
	if want := "tp|within a node|1.00 KiB|–|–|||\ntp|between nodes|2.00 KiB|3.00 ms|"; !strings.HasPrefix(links, want) || !strings.HasSuffix(links, "|4.00 KiB|5.00 ms|"+links[strings.LastIndex(links, "|")+1:]) {
		b.T.Errorf("the links are\n%s", links)
	}
	single := b.Text(`[...document.querySelectorAll("tr.c")].map((r) => r.dataset.name).filter(Boolean).sort().join(" ")`)
	var want []string
	for _, node := range in.Stages[len(in.Stages)-1].Nodes {
		if node.Op.Class == graph.Collective {
			want = append(want, node.Name())
		}
	}
	slices.Sort(want)
	if single != strings.Join(want, " ") {
		b.T.Errorf("there are\n%s\nin place of\n%s", single, strings.Join(want, " "))
	}
}

// timeline zooms and moves with keys, wheel and mouse, and names what is under the pointer.
func timeline(b *chromium.Browser) {
	b.Press("4")
	window := func() (from, to float64) {
		var w [2]float64
		b.Eval(`[...document.querySelectorAll("main canvas")].map((c) => [Number(c.dataset.from), Number(c.dataset.to)])[0]`, &w)
		return w[0], w[1]
	}
	_, all := window()
	b.Press("+", "+")
	from, to := window()
	if to-from > all*0.37 || from <= 0 {
		b.T.Errorf("+ leads from %g to %g of %g", from, to, all)
	}
	b.Press("ArrowRight")
	if f, _ := window(); f <= from {
		b.T.Errorf("the arrow moves from %g to %g", from, f)
	}
	b.Press("0")
	if f, to := window(); f != 0 || to != all {
		b.T.Errorf("0 shows %g to %g of %g", f, to, all)
	}
	// Texts of a paint neither overlap nor leave the canvas.
	b.Eval(`(() => { const P = CanvasRenderingContext2D.prototype, plain = P.fillText; window.said = [];
		P.fillText = function (t, x, y) { said.push({ t, y, from: x, to: x + this.measureText(t).width, all: this.canvas.clientWidth }); plain.call(this, t, x, y); }; return 0; })()`, new(int))
	for range 6 {
		b.Eval(`(said.length = 0)`, new(int))
		b.Press("+", "ArrowLeft")
		b.Eval(`(said.length = 0)`, new(int))
		b.Press("ArrowRight")
		if wrong := b.Text(`said.filter((a, i) => a.to > a.all + 1 || said.some((b, j) => j < i && Math.abs(a.y - b.y) < 8 && a.from < b.to && b.from < a.to)).map((a) => a.t).join(", ")`); wrong != "" {
			b.T.Errorf("these overlap others or leave the canvas: %s", wrong)
		}
	}
	b.Press("0")
	var at [4]float64
	b.Eval(`(() => { const r = document.querySelector("main canvas").getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()`, &at)
	b.WheelUp(at[0]+at[2]/2, at[1]+60)
	b.Until(`Number(document.querySelector("main canvas").dataset.from) > 0`)
	b.Press("0", "n", "n", "+", "+", "+", "+")
	first := b.Text(`document.querySelector("#detail h2").textContent`)
	b.Press("n")
	if next := b.Text(`document.querySelector("#detail h2").textContent`); next == first || first == "" {
		b.T.Errorf("n leads from %q to %q", first, next)
	}
	seen := b.Text(`(() => { const c = document.querySelector("main canvas"), r = c.getBoundingClientRect();
		for (let x = 120; x < r.width; x += 4) for (let y = 44; y < 100; y += 6) {
			c.dispatchEvent(new PointerEvent("pointermove", { clientX: r.x + x, clientY: r.y + y, bubbles: true }));
			if (!document.getElementById("tip").hidden) return document.getElementById("tip").innerText;
		} return ""; })()`)
	if !strings.Contains(seen, "rank 0") || !strings.Contains(seen, "from") {
		b.T.Errorf("under the pointer is %q", seen)
	}
	b.Press("f")
	if !b.Yes(`document.querySelector("#allranks").getAttribute("aria-pressed") === "true"`) {
		b.T.Error("f does not show each rank")
	}
	b.Press("f", "Escape")
}

// memory says what lives where.
func memory(b *chromium.Browser) {
	b.Press("5")
	seen := b.Text(`(() => { const c = document.querySelector("main canvas"), r = c.getBoundingClientRect();
		for (let x = 200; x < r.width; x += 20) for (let y = 140; y < 410; y += 10) {
			c.dispatchEvent(new PointerEvent("pointermove", { clientX: r.x + x, clientY: r.y + y, bubbles: true }));
			const t = document.getElementById("tip").innerText; if (!document.getElementById("tip").hidden && t.includes("bytes per")) return t;
		} return ""; })()`)
	if !strings.Contains(seen, "bytes per") {
		b.T.Errorf("under the pointer is %q", seen)
	}
	if text := b.Text(`document.querySelector("main").innerText`); !strings.Contains(text, "weights") || !strings.Contains(text, "activations") {
		b.T.Errorf("the view of memory says\n%s", text)
	}
}

// theme is dark and light in turn, by key and as the system says.
func theme(b *chromium.Browser) {
	ground := func() string { return b.Text(`getComputedStyle(document.body).backgroundColor`) }
	light := ground()
	b.Press("t")
	if dark := ground(); dark == light || !b.Yes(`document.documentElement.classList.contains("dark")`) {
		b.T.Errorf("t leaves %s as it was", light)
	}
	b.Press("t")
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
	b.Until(`document.documentElement.classList.contains("dark")`)
	b.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "light"}}}, nil)
	b.Until(`!document.documentElement.classList.contains("dark")`)
	b.Press("?")
	if !b.Yes(`document.getElementById("help").open`) {
		b.T.Error("? opens nothing")
	}
	b.Click("#help button")
}

// TestPageNarrow: on 800 pixels, and on a phone, nothing is wider than the window, no table scrolls
// sideways on the phone, and the tab of the view is in sight.
func TestPageNarrow(t *testing.T) {
	b, address := opened(t, input(t, golden(t, "mamba2-g1"), 2, "sequence", 2, 80), 800, 900)
	for _, width := range []int{800, 390} {
		b.Size(width, 900)
		for _, view := range []string{"1", "2", "3", "4", "5", "6"} {
			b.Press(view)
			if wide := b.Number(`document.documentElement.scrollWidth`); wide > float64(width) {
				t.Errorf("view %s is %g pixels wide in a window of %d", view, wide, width)
			}
			if width == 390 && !b.Yes(`[...document.querySelectorAll(".scroll")].every((e) => e.scrollWidth <= e.clientWidth)`) {
				t.Errorf("on a phone a table of view %s scrolls sideways", view)
			}
			if !b.Yes(`(() => { const r = document.querySelector("#tabs [aria-selected=true]").getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; })()`) {
				t.Errorf("the tab of view %s is not in sight in a window of %d", view, width)
			}
		}
	}
	b.Quiet(address)
}

// TestPageHostile: no text of a model runs, or is markup.
func TestPageHostile(t *testing.T) {
	in := input(t, golden(t, "mamba-a"), 2, "channel", 1, 4)
	in.Model, in.Strategy, in.Facts = hostile, hostile, []explain.Fact{{Name: hostile, Text: hostile}}
	in.Stages[0].Doc, in.Runs[0].About, in.Runs[0].Name = hostile, hostile, hostile
	b, address := opened(t, in, 1200, 800)
	for _, view := range []string{"1", "2", "3", "4", "5", "6"} {
		b.Press(view)
		if b.Yes(`window.bad || document.querySelector("main img, header img")`) {
			t.Errorf("view %s runs what a model says", view)
		}
	}
	b.Quiet(address)
}

// TestPageOneRank: a page without collectives, proof and times has all views.
func TestPageOneRank(t *testing.T) {
	in := input(t, golden(t, "mamba-a"), 1, "", 1, 4)
	for i := range in.Runs {
		in.Runs[i].Events, in.Runs[i].Clock = nil, ""
	}
	b, address := opened(t, in, 1200, 800)
	for view, want := range map[string]string{"1": "1 rank", "2": "fuse", "3": "needs no collectives", "4": "no clock", "5": "activations", "6": "Not proved"} {
		b.Press(view)
		if text := b.Text(`document.querySelector("main").innerText`); !strings.Contains(text, want) {
			t.Errorf("view %s does not say %q:\n%s", view, want, text)
		}
	}
	b.Quiet(address)
}

// TestCompare: two rank counts are compared in figures and on one scale, the buttons lead from one
// side to the other, and a measured step is below the predicted one.
func TestCompare(t *testing.T) {
	in, other := input(t, golden(t, "jamba"), 2, "channel", 2, 33), input(t, golden(t, "jamba"), 4, "channel", 2, 33)
	in.Against = other
	r := &in.Runs[1]
	for _, e := range r.Events {
		e.Start, e.End = 3*e.Start+1, 3*e.End+1
		r.Measured = append(r.Measured, e)
	}
	r.MeasuredOn = "measured on a clock"
	b, address := opened(t, in, 1440, 900)
	if got := b.Text(`document.querySelector("main h2").textContent`); got != "2 ranks, channel and 4 ranks, channel" {
		t.Errorf("the page opens with %s", got)
	}
	for i, side := range []*explain.Input{in, other} {
		cell := fmt.Sprintf(`document.querySelector("#figures tbody tr").children[%d].textContent`, i+1)
		if got, want := b.Text(cell), fmt.Sprint(side.Certificate.Collectives); got != want {
			t.Errorf("side %d has %s collectives, want %s", i, got, want)
		}
	}
	if !b.Yes(`((r) => Number(r) > 0.4 && Number(r) < 0.7)(document.querySelectorAll("#figures tbody tr")[1].lastChild.textContent)`) {
		t.Error("4 ranks do not have about half of the weights of 2")
	}
	if !b.Yes(`document.querySelectorAll("main .pair section").length === 2 && Number(document.querySelector("main canvas").dataset.to) > 0`) {
		t.Error("there are no timelines, or no collectives of both sides")
	}
	b.Press("4")
	b.Eval(`[...document.querySelectorAll("main .bar button")].find((e) => e.textContent === "decode").click()`, nil)
	if text := b.Text(`document.querySelector("main").innerText`); !strings.Contains(text, "measured on a clock") || !strings.Contains(text, "3.00 times the prediction") {
		t.Errorf("the timeline does not say what was measured:\n%s", text)
	}
	b.Eval(`document.querySelector("#about button:last-child").click()`, nil)
	b.Until(`document.readyState === "complete" && location.hash.includes("side=1") && document.querySelector("#about button:last-child").getAttribute("aria-pressed") === "true"`)
	b.Press("1")
	if got := b.Text(`document.querySelector("main .card").innerText`); !strings.HasPrefix(got, "4 ranks") {
		t.Errorf("the other side is %s", got)
	}
	b.Press("7")
	b.Size(800, 900)
	if !b.Yes(`document.documentElement.scrollWidth <= 800`) {
		t.Error("the comparison is wider than 800 pixels")
	}
	b.Size(390, 844)
	if !b.Yes(`document.documentElement.scrollWidth <= 390`) {
		t.Errorf("the comparison is wider than 390 pixels: %s", b.Text(`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 390 && !e.closest(".sides")).map((e) => e.tagName + "." + e.className + "#" + e.id).slice(0, 12).join(" ")`))
	}
	b.Quiet(address)
}

// TestPageLarge: 64 layers on 8 ranks are a page of a few hundred KB, equal layers are one,
// and every value of every pass, and every collective, is found.
func TestPageLarge(t *testing.T) {
	g, err := synth.Graph(synth.Options{Like: "mamba-2.8b"})
	if err != nil {
		t.Fatal(err)
	}
	in := input(t, g, 8, "channel", 8, 512)
	html, _ := page(t, in)
	if len(html) > 1<<20 {
		t.Errorf("the page has %d bytes", len(html))
	}
	b, address := opened(t, in, 1440, 900)
	b.Press("2")
	if n := b.Number(`document.querySelectorAll("details.group").length`); n > 5 {
		t.Errorf("%g groups of 64 layers", n)
	}
	b.Press("3")
	if n := b.Number(`document.querySelectorAll("tr.c:not([hidden])").length`); n != 4 {
		t.Errorf("%g lines of collectives, of which there are %d", n, in.Certificate.Collectives)
	}
	found(b, names(in))
	b.Quiet(address)
}

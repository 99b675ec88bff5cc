// Package chromium drives a headless Chromium in tests of pages, through chromedp.
package chromium

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/krait-ml/krait/internal/goldens"
)

// Browser is a headless Chromium with one page.
type Browser struct {
	T   testing.TB
	ctx context.Context
	*record
}

// record is what the page did, for [Browser.Quiet].
type record struct {
	sync.Mutex
	errors []string // of the page, and of its console
	urls   []string // that it requested
}

// Find returns the path of the program. It skips the test if there is none, and without
// KRAIT_TEST_ALL, since a browser takes seconds of CPU: CI opens the pages for each commit.
func Find(t testing.TB) string {
	if !goldens.All() {
		t.Skip("pages are opened in Chromium with KRAIT_TEST_ALL")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("Chromium is not installed; install chromium to test the page in it")
	return ""
}

// Open opens the page at an address, in a window of width × height pixels.
func Open(t testing.TB, address string, width, height int) *Browser {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(Find(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // the test is over, however the browser ends
		end()
		stop()
	})
	b := &Browser{T: t, ctx: ctx, record: &record{}}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.Call(network.CommandEnable, nil, nil)
	b.Size(width, height)
	b.do(chromedp.Navigate(address))
	b.Until(`document.readyState === "complete" && document.getElementById("tabs") && document.getElementById("tabs").children.length > 0`)
	return b
}

func (r *record) listen(event any) {
	r.Lock()
	defer r.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown, *log.EventEntryAdded:
		text, _ := json.Marshal(e)
		r.errors = append(r.errors, string(text))
	case *network.EventRequestWillBeSent:
		r.urls = append(r.urls, e.Request.URL)
	}
}

// In returns the browser for a subtest.
func (b *Browser) In(t testing.TB) *Browser { return &Browser{t, b.ctx, b.record} }

func (b *Browser) do(action chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	ctx, stop := context.WithTimeout(b.ctx, time.Minute)
	defer stop()
	if _, err := chromedp.Run(ctx, action); err != nil {
		b.T.Fatal(err)
	}
}

// Call runs a command of the DevTools protocol.
func (b *Browser) Call(method string, params, result any) {
	b.T.Helper()
	var text json.RawMessage
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error { return t.Call(ctx, method, params, &text) }))
	if result == nil {
		return
	}
	if err := json.Unmarshal(text, result); err != nil {
		b.T.Fatalf("%s: %v", method, err)
	}
}

// Size sets the size of the window, in pixels.
func (b *Browser) Size(width, height int) {
	b.T.Helper()
	b.do(chromedp.EmulateViewport(int64(width), int64(height)))
}

// Eval evaluates an expression on the page, whose value may be a promise, and stores its value.
func (b *Browser) Eval(expression string, value any) {
	b.T.Helper()
	if err := b.evaluate(expression, value); err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
}

func (b *Browser) evaluate(expression string, value any) error {
	ctx, stop := context.WithTimeout(b.ctx, time.Minute)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[*runtime.RemoteObject](expression, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
	if err == nil && value != nil {
		err = json.Unmarshal(text.Value, value)
	}
	return err
}

// eval returns the value of an expression.
func eval[T any](b *Browser, expression string) (value T) {
	b.T.Helper()
	b.Eval(expression, &value)
	return value
}

// Text returns the text that an expression gives.
func (b *Browser) Text(expression string) string { b.T.Helper(); return eval[string](b, expression) }

// Number returns the number that an expression gives.
func (b *Browser) Number(expression string) float64 {
	b.T.Helper()
	return eval[float64](b, expression)
}

// Yes reports whether an expression is truthy.
func (b *Browser) Yes(expression string) bool {
	b.T.Helper()
	return eval[bool](b, "!!("+expression+")")
}

// Until waits until an expression is truthy, on this page or on one that replaces it meanwhile.
func (b *Browser) Until(expression string) {
	b.T.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var yes bool
		err := b.evaluate("!!("+expression+")", &yes)
		switch {
		case err != nil && !strings.Contains(err.Error(), "navigated or closed"):
			b.T.Fatalf("%s: %v", expression, err)
		case yes:
			return
		case time.Now().After(end):
			b.T.Fatalf("it did not come to %s", expression)
		}
	}
}

var keysNamed = map[string]string{"Enter": kb.Enter, "Escape": kb.Escape, "ArrowLeft": kb.ArrowLeft, "ArrowUp": kb.ArrowUp,
	"ArrowRight": kb.ArrowRight, "ArrowDown": kb.ArrowDown, "Tab": kb.Tab}

// Press presses keys one after the other: characters, or names such as Enter. The text comes with
// the key, unlike by [chromedp.KeyEvent], so that a page that handles the key can prevent it.
func (b *Browser) Press(keys ...string) {
	b.T.Helper()
	for _, k := range keys {
		r, _ := utf8.DecodeRuneInString(cmp.Or(keysNamed[k], k))
		events := kb.Encode(r)
		down, up := events[0], events[len(events)-1]
		if len(events) > 2 {
			down.Text = events[1].Text
		}
		down.Type = kb.KeyDown
		b.Call(input.CommandDispatchKeyEvent, down, nil)
		b.Call(input.CommandDispatchKeyEvent, up, nil)
	}
}

// Write types a text.
func (b *Browser) Write(text string) { b.T.Helper(); b.Press(strings.Split(text, "")...) }

// Click clicks in the middle of the first element that a selector finds.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	at := eval[*[2]float64](b, fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return null; e.scrollIntoView({ block: "center" }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, selector))
	if at == nil {
		b.T.Fatalf("the page has no %s", selector)
	}
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// WheelUp turns the wheel of the mouse by 300 pixels at a position in the window.
func (b *Browser) WheelUp(x, y float64) {
	b.T.Helper()
	b.Call(input.CommandDispatchMouseEvent, map[string]any{"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -300}, nil)
}

// Shoot writes a picture of the window to a file.
func (b *Browser) Shoot(file string) {
	b.T.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// Quiet fails the test if the page reported an error that has none of the texts in allowed, or
// requested anything that does not begin with its own address.
func (b *Browser) Quiet(address string, allowed ...string) {
	b.T.Helper()
	b.Lock()
	defer b.Unlock()
	for _, e := range b.errors {
		if !slices.ContainsFunc(allowed, func(text string) bool { return strings.Contains(e, text) }) {
			b.T.Errorf("the page reports %s", e)
		}
	}
	for _, u := range b.urls {
		if !strings.HasPrefix(u, address) && u != "about:blank" && !strings.HasPrefix(u, "data:") {
			b.T.Errorf("the page requests %s", u)
		}
	}
}

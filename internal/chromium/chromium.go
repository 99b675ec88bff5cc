// Package chromium drives a Chromium without a window, for tests of pages.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Browser is a Chromium without a window, which is driven through a pair of pipes
// (--remote-debugging-pipe): messages of the DevTools protocol, with a 0 after each.
type Browser struct {
	T       testing.TB
	to      io.Writer
	mu      sync.Mutex
	id      int
	waits   map[int]chan reply
	session string
	logged  []string // errors of the page, and of its console
	asked   []string // addresses that it asked for
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Find finds the program, or skips the test.
func Find(t testing.TB) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium; install chromium to test the page in it")
	return ""
}

// Open opens an address in a window of some pixels.
func Open(t testing.TB, address string, width, height int) *Browser {
	path := Find(t)
	toRead, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	run.ExtraFiles = []*os.File{toRead, fromWrite}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	toRead.Close()
	fromWrite.Close()
	b := &Browser{T: t, to: to, waits: map[int]chan reply{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		_, _ = fmt.Fprintf(b.to, "{\"id\":%d,\"method\":\"Browser.close\"}\x00", b.id+1)
		b.mu.Unlock()
		timer := time.AfterFunc(10*time.Second, func() { _ = run.Process.Kill() })
		_ = run.Wait()
		timer.Stop()
		to.Close()
		<-read
		from.Close()
	})
	b.load(address, width, height)
	return b
}

// load attaches to the window and loads the page.
func (b *Browser) load(address string, width, height int) {
	var targets struct {
		Infos []struct {
			ID   string `json:"targetId"`
			Type string `json:"type"`
		} `json:"targetInfos"`
	}
	page := ""
	for range 100 { // the window opens after the program answers
		b.Call("Target.getTargets", nil, &targets)
		for _, i := range targets.Infos {
			if i.Type == "page" {
				page = i.ID
			}
		}
		if page != "" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	var attached struct {
		Session string `json:"sessionId"`
	}
	b.Call("Target.attachToTarget", map[string]any{"targetId": page, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Runtime", "Page", "Log", "Network"} {
		b.Call(domain+".enable", nil, nil)
	}
	b.Size(width, height)
	b.Call("Page.navigate", map[string]any{"url": address}, nil)
	b.Until(`document.readyState === "complete" && document.getElementById("tabs") && document.getElementById("tabs").children.length > 0`)
}

// In is the browser for a part of a test.
func (b *Browser) In(t testing.TB) *Browser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.T = t
	return b
}

// Size is that of the window, in pixels.
func (b *Browser) Size(width, height int) {
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// read hands answers to who waits for them, and keeps what the page complains of.
func (b *Browser) read(from io.Reader) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for _, w := range b.waits {
				close(w)
			}
			b.waits = nil
			b.mu.Unlock()
			return
		}
		var m reply
		_ = json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m)
		b.mu.Lock()
		switch {
		case m.ID > 0 && b.waits[m.ID] != nil:
			b.waits[m.ID] <- m
			delete(b.waits, m.ID)
		case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded":
			b.logged = append(b.logged, string(m.Params))
		case m.Method == "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			_ = json.Unmarshal(m.Params, &p)
			b.asked = append(b.asked, p.Request.URL)
		}
		b.mu.Unlock()
	}
}

// Call sends a message and waits for its answer.
func (b *Browser) Call(method string, params, result any) {
	b.T.Helper()
	if err := b.try(method, params, result); err != nil {
		b.T.Fatalf("%s: %v", method, err)
	}
}

func (b *Browser) try(method string, params, result any) error {
	wait := make(chan reply, 1)
	b.mu.Lock()
	if b.waits == nil {
		b.mu.Unlock()
		return errors.New("the browser has ended")
	}
	b.id++
	b.waits[b.id] = wait
	message := map[string]any{"id": b.id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-wait:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(60 * time.Second):
		return errors.New("no answer in a minute")
	}
}

// Eval is the value of an expression on the page.
func (b *Browser) Eval(expression string, value any) {
	b.T.Helper()
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.Exception != nil {
		b.T.Fatalf("%s: %s %s", expression, out.Exception.Text, out.Exception.Exception.Description)
	}
	if value != nil {
		if err := json.Unmarshal(out.Result.Value, value); err != nil {
			b.T.Fatalf("%s gives %s: %v", expression, out.Result.Value, err)
		}
	}
}

// Text, Number and Yes are values of an expression.
func (b *Browser) Text(expression string) (s string) { b.T.Helper(); b.Eval(expression, &s); return s }
func (b *Browser) Number(expression string) (n float64) {
	b.T.Helper()
	b.Eval(expression, &n)
	return n
}
func (b *Browser) Yes(expression string) (yes bool) {
	b.T.Helper()
	b.Eval("!!("+expression+")", &yes)
	return yes
}

// Until waits for something to be so.
func (b *Browser) Until(expression string) {
	b.T.Helper()
	for range 500 {
		if b.Yes(expression) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.T.Fatalf("it did not come to %s", expression)
}

// keysNamed are keys whose names are not what they type.
var keysNamed = map[string]int{"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}

// Press presses keys, as a keyboard does.
func (b *Browser) Press(keys ...string) {
	b.T.Helper()
	for _, k := range keys {
		down := map[string]any{"type": "keyDown", "key": k}
		if code, ok := keysNamed[k]; ok {
			down["windowsVirtualKeyCode"], down["code"] = code, k
			if k == "Enter" {
				down["text"] = "\r"
			}
		} else {
			down["text"] = k
		}
		b.Call("Input.dispatchKeyEvent", down, nil)
		b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": k}, nil)
	}
}

// Write types a text.
func (b *Browser) Write(text string) { b.T.Helper(); b.Press(strings.Split(text, "")...) }

// Click clicks in the middle of the first element that a selector finds.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	var at *[2]float64
	b.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return null; e.scrollIntoView({ block: "center" }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, selector), &at)
	if at == nil {
		b.T.Fatalf("there is no %s", selector)
	}
	b.Mouse("mousePressed", at[0], at[1])
	b.Mouse("mouseReleased", at[0], at[1])
}

// Mouse moves, presses or lets go at a place in the window, by the protocol's names.
func (b *Browser) Mouse(kind string, x, y float64) {
	b.T.Helper()
	p := map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
	if kind == "mouseMoved" || kind == "mouseWheel" {
		p["button"], p["clickCount"] = "none", 0
	}
	if kind == "mouseWheel" {
		p["deltaX"], p["deltaY"] = 0, -300
	}
	b.Call("Input.dispatchMouseEvent", p, nil)
}

// Shoot writes a picture of the window.
func (b *Browser) Shoot(file string) {
	b.T.Helper()
	var out struct {
		Data string `json:"data"`
	}
	b.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	png, err := base64.StdEncoding.DecodeString(out.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// Quiet fails where the page complained, or asked for anything that does not begin with its address; but for
// complaints that have one of some texts.
func (b *Browser) Quiet(address string, but ...string) {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.logged {
		if !slices.ContainsFunc(but, func(text string) bool { return strings.Contains(l, text) }) {
			b.T.Errorf("the page says %s", l)
		}
	}
	for _, a := range b.asked {
		if !strings.HasPrefix(a, address) && a != "about:blank" && !strings.HasPrefix(a, "data:") {
			b.T.Errorf("the page asks for %s", a)
		}
	}
}

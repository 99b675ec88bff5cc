package explain_test

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
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a Chromium without a window, which is driven through a pair of pipes
// (--remote-debugging-pipe): messages of the DevTools protocol, with a 0 after each.
type browser struct {
	t       testing.TB
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

// chromium finds the program, or skips the test.
func chromium(t testing.TB) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium; install chromium to test the page in it")
	return ""
}

// browse opens a file in a window of some pixels.
func browse(t testing.TB, address string, width, height int) *browser {
	path := chromium(t)
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
	b := &browser{t: t, to: to, waits: map[int]chan reply{}}
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
	b.open(address, width, height)
	return b
}

// open attaches to the window and loads the page.
func (b *browser) open(address string, width, height int) {
	var targets struct {
		Infos []struct {
			ID   string `json:"targetId"`
			Type string `json:"type"`
		} `json:"targetInfos"`
	}
	page := ""
	for range 100 { // the window opens after the program answers
		b.call("Target.getTargets", nil, &targets)
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
	b.call("Target.attachToTarget", map[string]any{"targetId": page, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Runtime", "Page", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.size(width, height)
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.until(`document.readyState === "complete" && document.getElementById("tabs") && document.getElementById("tabs").children.length > 0`)
}

// in is the browser for a part of a test.
func (b *browser) in(t testing.TB) *browser {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t = t
	return b
}

func (b *browser) size(width, height int) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// read hands answers to who waits for them, and keeps what the page complains of.
func (b *browser) read(from io.Reader) {
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

// call sends a message and waits for its answer.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *browser) try(method string, params, result any) error {
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

// eval is the value of an expression on the page.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
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
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.Exception != nil {
		b.t.Fatalf("%s: %s %s", expression, out.Exception.Text, out.Exception.Exception.Description)
	}
	if value != nil {
		if err := json.Unmarshal(out.Result.Value, value); err != nil {
			b.t.Fatalf("%s gives %s: %v", expression, out.Result.Value, err)
		}
	}
}

// text, number and yes are values of an expression.
func (b *browser) text(expression string) (s string) { b.t.Helper(); b.eval(expression, &s); return s }
func (b *browser) number(expression string) (n float64) {
	b.t.Helper()
	b.eval(expression, &n)
	return n
}
func (b *browser) yes(expression string) (yes bool) {
	b.t.Helper()
	b.eval("!!("+expression+")", &yes)
	return yes
}

// until waits for something to be so.
func (b *browser) until(expression string) {
	b.t.Helper()
	for range 500 {
		if b.yes(expression) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatalf("it did not come to %s", expression)
}

// keysNamed are keys whose names are not what they type.
var keysNamed = map[string]int{"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}

// press presses keys, as a keyboard does.
func (b *browser) press(keys ...string) {
	b.t.Helper()
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
		b.call("Input.dispatchKeyEvent", down, nil)
		b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": k}, nil)
	}
}

// write types a text.
func (b *browser) write(text string) { b.t.Helper(); b.press(strings.Split(text, "")...) }

// click clicks in the middle of the first element that a selector finds.
func (b *browser) click(selector string) {
	b.t.Helper()
	var at *[2]float64
	b.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return null; e.scrollIntoView({ block: "center" }); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, selector), &at)
	if at == nil {
		b.t.Fatalf("there is no %s", selector)
	}
	b.mouse("mousePressed", at[0], at[1])
	b.mouse("mouseReleased", at[0], at[1])
}

func (b *browser) mouse(kind string, x, y float64) {
	b.t.Helper()
	p := map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
	if kind == "mouseMoved" || kind == "mouseWheel" {
		p["button"], p["clickCount"] = "none", 0
	}
	if kind == "mouseWheel" {
		p["deltaX"], p["deltaY"] = 0, -300
	}
	b.call("Input.dispatchMouseEvent", p, nil)
}

// shoot writes a picture of the window.
func (b *browser) shoot(file string) {
	b.t.Helper()
	var out struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	png, err := base64.StdEncoding.DecodeString(out.Data)
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// quiet fails where the page complained, or asked for anything but itself.
func (b *browser) quiet(address string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.logged {
		b.t.Errorf("the page says %s", l)
	}
	for _, a := range b.asked {
		if page, _, _ := strings.Cut(a, "#"); page != address && page != "about:blank" && !strings.HasPrefix(page, "data:") {
			b.t.Errorf("the page asks for %s", a)
		}
	}
}

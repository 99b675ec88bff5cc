package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/serving/openai"
)

// process is a krait that may be killed, and begun again at the same address.
type process struct {
	args  []string
	env   []string
	ready string // what it prints first
	mu    sync.Mutex
	c     *exec.Cmd
	errs  *bytes.Buffer // of the last
}

// start begins it, and waits until it is there.
func (p *process) start(t *testing.T) {
	t.Helper()
	c, _, errs := command(t, p.args...)
	c.Env = append(c.Env, p.env...)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(line, p.ready) {
			break
		}
		if err != nil {
			t.Errorf("%q: %v: %s", p.args, err, errs)
			break
		}
	}
	p.mu.Lock()
	p.c, p.errs = c, errs
	p.mu.Unlock()
}

// kill ends it, as no program can ask not to be.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.c.Process.Kill()
	p.c.Wait()
}

// resident is how much memory it has, in bytes.
func (p *process) resident(t *testing.T) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.c.Process.Pid))
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if err != nil || found == nil {
		t.Errorf("no VmRSS in %s: %v", text, err)
		return 0
	}
	kB, _ := strconv.Atoi(string(found[1]))
	return float64(kB) * 1024
}

// freeAddresses are some without a listener. Connections begin at 127.0.0.1, and could take a port
// there while who waits at it is dead.
func freeAddresses(t *testing.T, n int) (list []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list
}

// soaked is a router before servers, one of which is never killed, and prefill servers.
type soaked struct {
	route, stays    *process
	url, staysURL   string
	admin           string
	servers, reads  []*process // that are killed
	model           *krait.Model
	mu              sync.Mutex
	ok, told, ended int // requests: answered, answered by an error, ended by their clients
	truncated       int // and those of which a part was sent
	wrong           []string
}

func newSoaked(t *testing.T) *soaked {
	s, dir, free := &soaked{}, toolModel(t), freeAddresses(t, 7)
	prefill, decode := free[:2], free[2:5]
	for _, a := range prefill {
		s.reads = append(s.reads, &process{args: []string{"serve", "prefill", dir, "-q", "--listen", a, "--prefix-cache", "4MiB"}, ready: "prefill at"})
	}
	server := func(a string) *process {
		return &process{args: []string{"serve", "decode", dir, "-q", "--listen", a, "--model-name", "m", "--tp", "2", "--slots", "3", "--max-queue", "4", "--prefix-cache", "1MiB",
			"--prefill", strings.Join(prefill, ",")}, env: []string{faultyEvery + "=3000"}, ready: "serving at"}
	}
	s.servers = []*process{server(decode[0]), server(decode[1])}
	s.stays = server(decode[2])
	s.staysURL = "http://" + decode[2]
	s.url, s.admin = free[5], free[6]
	s.route = &process{args: []string{"route", "-q", "--listen", s.url, "--admin", s.admin, "--decode", strings.Join(decode, ","), "--prefill", strings.Join(prefill, ","),
		"--check", "100ms", "--check-timeout", "2s", "--eject-for", "1s"}, ready: "routing at"}
	s.url, s.admin = "http://"+s.url, "http://"+s.admin
	for _, p := range slices.Concat(s.reads, s.servers, []*process{s.stays, s.route}) {
		p.start(t)
		t.Cleanup(p.kill)
	}
	var err error
	if s.model, err = krait.Open(dir, krait.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.model.Close() })
	return s
}

// question is a request, and the text that answers it: of a completion, or of a chat with its
// calls.
type question struct {
	path string
	body map[string]any
	want string
}

// soakTemplate shows tools, and tells that calls are written as Hermes does.
const soakTemplate = `{% if tools %}{{ tools | tojson }} <tool_call>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant: `

// toolModel writes the folder of the embedded model with the template.
func toolModel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{"chat_template.jinja": []byte(soakTemplate)}
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join("../internal/embedded/tiny-mamba", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// questions begin alike, some of them, and are greedy or have a seed. Some are held to a schema,
// and some call functions. A server alone answers them first.
func (s *soaked) questions(t *testing.T, r *rand.Rand) (list []question) {
	t.Helper()
	alone, err := openai.New(s.model, openai.Options{Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(alone)
	defer h.Close()
	word := map[string]any{"type": "string", "maxLength": 8}
	object := func(of map[string]any, required ...string) map[string]any {
		return map[string]any{"type": "object", "properties": of, "required": required, "additionalProperties": false}
	}
	function := func(name string, parameters map[string]any) any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "strict": true, "parameters": parameters}}
	}
	for i := range 36 {
		q := question{"/v1/completions", map[string]any{"prompt": strings.Repeat(genesis, 3)[:40+r.IntN(200)], "max_tokens": 1 + r.IntN(40), "temperature": 0}, ""}
		if i%2 == 0 {
			q.body["temperature"], q.body["seed"] = 0.7, i
		}
		switch i % 6 {
		case 3:
			q.body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "schema": object(map[string]any{
				"names": map[string]any{"type": "array", "items": word, "maxItems": 3}, "years": map[string]any{"type": "integer", "minimum": 0, "maximum": 100 + i}}, "names", "years")}}
		case 4, 5:
			q.path = "/v1/chat/completions"
			delete(q.body, "prompt")
			q.body["messages"] = []any{map[string]any{"role": "user", "content": genesis[:20+r.IntN(60)]}}
			q.body["max_tokens"], q.body["tool_choice"] = 120, "required"
			q.body["tools"] = []any{function("look_up", object(map[string]any{"verse": word, "book": map[string]any{"enum": []string{"Genesis", "Exodus"}}}, "verse", "book")),
				function("note", object(map[string]any{"text": word, "done": map[string]any{"type": "boolean"}}, "text", "done"))}
		}
		data, err := json.Marshal(q.body)
		if err != nil {
			t.Fatal(err)
		}
		in, err := http.NewRequest("POST", h.URL+q.path, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		in.Header.Set("Content-Type", "application/json")
		failed := false
		if q.want, failed, err = answeredBy(http.DefaultClient, in, false, 0); err != nil || failed {
			t.Fatalf("%s: %v", data, err)
		}
		list = append(list, q)
	}
	return list
}

// client is how a request is asked for.
type client struct {
	stream bool
	goes   bool          // it disconnects
	cut    bool          // it sends a part of its body
	slow   time.Duration // between two reads
}

// ask sends a question, and looks at what comes: the text, or an error that says so, before some
// time is over; a client that goes gets what it gets.
func (s *soaked) ask(by *http.Client, q question, how client, r *rand.Rand) {
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	if how.goes {
		time.AfterFunc(time.Duration(r.IntN(60))*time.Millisecond, end)
	}
	body := map[string]any{"stream": how.stream}
	for k, v := range q.body {
		body[k] = v
	}
	data, _ := json.Marshal(body)
	if how.cut {
		s.truncate(q.path, data, r)
		return
	}
	in, _ := http.NewRequestWithContext(ctx, "POST", s.url+q.path, bytes.NewReader(data))
	in.Header.Set("Content-Type", "application/json")
	text, failed, err := answeredBy(by, in, how.stream, how.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case how.goes && (ctx.Err() != nil || err != nil):
		s.ended++
	case err != nil:
		s.wrong = append(s.wrong, fmt.Sprintf("neither an answer nor an error: %v", err))
	case failed:
		s.told++
	case text != q.want:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %q, not %q", data, text, q.want))
	default:
		s.ok++
	}
}

// truncate sends a part of a body, and closes the connection. No answer is awaited.
func (s *soaked) truncate(path string, body []byte, r *rand.Rand) {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err == nil {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body[:r.IntN(len(body))])
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		c.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.truncated++
}

// slowly reads a piece at a time.
type slowly struct {
	io.Reader
	wait time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.wait)
	return s.Reader.Read(p[:min(len(p), 512)])
}

// soakMessage is a message, or a delta of one.
type soakMessage struct {
	Content string
	Calls   []struct {
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func (m soakMessage) text() string {
	text := m.Content
	for _, c := range m.Calls {
		text += c.Function.Name + c.Function.Arguments
	}
	return text
}

// answeredBy is the text of an answer, or that it is an error in the API's shape.
func answeredBy(client *http.Client, in *http.Request, stream bool, slow time.Duration) (text string, failed bool, err error) {
	a, err := client.Do(in)
	if err != nil {
		return "", false, err
	}
	defer a.Body.Close()
	data, err := io.ReadAll(slowly{a.Body, slow})
	if err != nil {
		return "", false, err
	}
	events := []string{string(data)}
	if stream && a.StatusCode == 200 {
		events = strings.Split(strings.TrimSuffix(string(data), "\n\n"), "\n\n")
	}
	for i, e := range events {
		if e == "data: [DONE]" && i == len(events)-1 {
			return text, false, nil
		}
		var part struct {
			Choices []struct {
				Text           string
				Message, Delta soakMessage
			}
			Error *struct{ Message, Code string }
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &part); err != nil {
			return "", false, fmt.Errorf("%q: %w", e, err)
		}
		switch {
		case part.Error != nil && part.Error.Message != "":
			return "", true, nil
		case a.StatusCode != 200 || len(part.Choices) != 1:
			return "", false, fmt.Errorf("%d %q", a.StatusCode, e)
		}
		text += part.Choices[0].Text + part.Choices[0].Message.text() + part.Choices[0].Delta.text()
	}
	if stream {
		return "", false, errors.New("a stream that ends without a word")
	}
	return text, false, nil
}

// gauge is a number of a page of metrics.
func gauge(t *testing.T, url, name string) float64 {
	t.Helper()
	a, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	found := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindSubmatch(text)
	if err != nil || found == nil {
		t.Fatalf("%s: no %s: %v", url, name, err)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSoak: clients that come and go, read slowly or send half a request ask a router for texts,
// JSON and calls, behind which servers and prefill servers are killed and stopped for a while, and
// ranks fail. Each request gets its text to the character, or an error; and what is not
// killed keeps its memory, goroutines and files, and holds nothing in the end. KRAIT_TEST_SOAK says
// for how long (2s).
func TestSoak(t *testing.T) {
	most, err := time.ParseDuration(os.Getenv("KRAIT_TEST_SOAK"))
	if err != nil {
		t.Skip("it takes as long as KRAIT_TEST_SOAK says: CI runs it for a minute")
	}
	s := newSoaked(t)
	list := s.questions(t, rand.New(rand.NewPCG(1, 2)))
	by := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	goroutines := func() float64 { return gauge(t, s.staysURL, "go_goroutines") + gauge(t, s.admin, "go_goroutines") }
	time.Sleep(200 * time.Millisecond) // checks
	before, files := goroutines(), s.files(t)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					how := client{stream: r.IntN(2) == 0, goes: r.IntN(4) == 0, cut: r.IntN(16) == 0}
					if r.IntN(8) == 0 {
						how.slow = time.Duration(r.IntN(30)) * time.Millisecond
					}
					s.ask(by, list[r.IntN(len(list))], how, r)
				}
			}
		})
	}
	var resident [][]float64
	all.Go(func() { resident = s.faults(t, most, stop) })
	all.Wait()
	by.CloseIdleConnections()
	t.Logf("%d answered, %d answered by an error, %d ended by their clients, %d truncated; asked again %v, lost in the middle %v",
		s.ok, s.told, s.ended, s.truncated, gauge(t, s.admin, "krait_route_retries_total"), s.lost(t))
	for i, w := range s.wrong {
		if i < 10 {
			t.Error(w)
		}
	}
	if s.ok < 20 || s.ended == 0 || s.truncated == 0 {
		t.Error("that is no test")
	}
	if most > 30*time.Second && (s.told == 0 || gauge(t, s.admin, "krait_route_retries_total") == 0 || s.lost(t) == 0) {
		t.Error("nothing failed")
	}
	s.heldNothing(t, before, goroutines)
	s.closed(t, files)
	flat(t, resident, most)
}

// files are the open files of the router and the server that stays.
func (s *soaked) files(t *testing.T) (n [2]int) {
	t.Helper()
	for i, p := range []*process{s.route, s.stays} {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.c.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		n[i] = len(list)
	}
	return n
}

// closed waits until no more files are open than before, but for connections that wait for the next
// request.
func (s *soaked) closed(t *testing.T, before [2]int) {
	t.Helper()
	var after [2]int
	for range 200 {
		if after = s.files(t); max(after[0]-before[0], after[1]-before[1]) <= 30 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("files of the router and the server that stays: %v before, %v after", before, after)
	if max(after[0]-before[0], after[1]-before[1]) > 30 {
		t.Errorf("files of the router and the server that stays: %v, before %v", after, before)
	}
}

// lost is how many streams ended by an error of the router.
func (s *soaked) lost(t *testing.T) (n float64) {
	a, err := http.Get(s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	for _, found := range regexp.MustCompile(`(?m)^krait_route_lost_total\{.*\} (\S+)$`).FindAllSubmatch(text, -1) {
		x, _ := strconv.ParseFloat(string(found[1]), 64)
		n += x
	}
	return n
}

// faults kills one at a time, or stops it for a while, until the time is over. It returns what
// those that stay had in memory, again and again.
func (s *soaked) faults(t *testing.T, most time.Duration, stop chan struct{}) (resident [][]float64) {
	defer close(stop)
	r := rand.New(rand.NewPCG(5, 6))
	for end := time.Now().Add(most); time.Now().Before(end); {
		time.Sleep(time.Duration(200+r.IntN(800)) * time.Millisecond)
		list := slices.Concat(s.servers, s.reads)
		p := list[r.IntN(len(list))]
		s.route.c.Process.Signal(syscall.SIGHUP) // ends nothing
		s.stays.c.Process.Signal(syscall.SIGHUP)
		if r.IntN(3) == 0 {
			p.c.Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			p.c.Process.Signal(syscall.SIGCONT)
		} else {
			p.kill()
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			p.start(t)
		}
		resident = append(resident, []float64{s.route.resident(t), s.stays.resident(t)})
	}
	return resident
}

// heldNothing waits until what stays has no request, and no more goroutines than before.
func (s *soaked) heldNothing(t *testing.T, before float64, goroutines func() float64) {
	t.Helper()
	var after, running, waiting, tokens float64
	for range 200 {
		running, waiting, tokens = gauge(t, s.staysURL, "krait_num_requests_running"), gauge(t, s.staysURL, "krait_num_requests_waiting"), gauge(t, s.staysURL, "krait_held_tokens")
		after = goroutines()
		// Connections that wait for the next request have two each, at either end.
		if running+waiting+tokens == 0 && after <= before+60 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("goroutines: %v before, %v after", before, after)
	if running+waiting+tokens != 0 || after > before+60 {
		t.Errorf("%v run, %v wait, %v tokens are held; %v goroutines, before %v", running, waiting, tokens, after, before)
	}
	a, err := http.Get(s.admin + "/machines")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if text, _ := io.ReadAll(a.Body); strings.Count(string(text), `"running":0,"work":0`) != 5 {
		t.Errorf("%s", text)
	}
}

// flat compares the middle of the second quarter of the time with that of the last.
func flat(t *testing.T, resident [][]float64, most time.Duration) {
	t.Helper()
	n := len(resident) / 4
	if most < time.Minute || n < 5 {
		return
	}
	for i, who := range []string{"the router", "the server that stays"} {
		middle := func(part [][]float64) float64 {
			var list []float64
			for _, x := range part {
				list = append(list, x[i])
			}
			slices.Sort(list)
			return list[len(list)/2] / (1 << 20)
		}
		early, late := middle(resident[n:2*n]), middle(resident[3*n:])
		t.Logf("%s has %.1f MB in the second quarter, %.1f in the last", who, early, late)
		if late > 1.2*early+4 {
			t.Errorf("%s grows: %.1f MB, then %.1f", who, early, late)
		}
	}
}

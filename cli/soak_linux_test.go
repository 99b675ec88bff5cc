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
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait"
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

// freeAddress is one without a listener. Connections begin at 127.0.0.1, and could take a port
// there while who waits at it is dead.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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
	wrong           []string
}

func newSoaked(t *testing.T) *soaked {
	s := &soaked{}
	var prefill []string
	for range 2 {
		a := freeAddress(t)
		prefill = append(prefill, a)
		s.reads = append(s.reads, &process{args: []string{"serve", "prefill", "-q", "--listen", a, "--prefix-cache", "4MiB"}, ready: "prefill at"})
	}
	var decode []string
	server := func() *process {
		a := freeAddress(t)
		decode = append(decode, a)
		return &process{args: []string{"serve", "decode", "-q", "--listen", a, "--tp", "2", "--slots", "3", "--max-queue", "4", "--prefix-cache", "1MiB",
			"--prefill", strings.Join(prefill, ",")}, env: []string{faultyEvery + "=3000"}, ready: "serving at"}
	}
	s.servers = []*process{server(), server()}
	s.stays = server()
	s.staysURL = "http://" + decode[2]
	s.url, s.admin = freeAddress(t), freeAddress(t)
	s.route = &process{args: []string{"route", "-q", "--listen", s.url, "--admin", s.admin, "--decode", strings.Join(decode, ","), "--prefill", strings.Join(prefill, ","),
		"--check", "100ms", "--check-timeout", "2s", "--eject-for", "1s"}, ready: "routing at"}
	s.url, s.admin = "http://"+s.url, "http://"+s.admin
	for _, p := range slices.Concat(s.reads, s.servers, []*process{s.stays, s.route}) {
		p.start(t)
		t.Cleanup(p.kill)
	}
	var err error
	if s.model, err = krait.Embedded(krait.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.model.Close() })
	return s
}

// question is a request, and the text that answers it.
type question struct {
	body map[string]any
	want string
}

// questions begin alike, some of them, and are greedy or have a seed.
func (s *soaked) questions(t *testing.T, r *rand.Rand) (list []question) {
	for i := range 24 {
		prompt := strings.Repeat(genesis, 3)[:40+r.IntN(200)]
		o := krait.Generate{MaxTokens: 1 + r.IntN(40)}
		body := map[string]any{"prompt": prompt, "max_tokens": o.MaxTokens, "temperature": 0}
		if i%2 == 0 {
			o.Temperature, o.Seed = 0.7, uint64(i)
			body["temperature"], body["seed"] = 0.7, i
		}
		g, err := s.model.Generate(t.Context(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, question{body, g.Text})
	}
	return list
}

// ask sends a question, streamed or not, and looks at what comes: the text, or an error that says
// so, before some time is over; a client that goes gets what it gets.
func (s *soaked) ask(client *http.Client, q question, stream, goes bool, r *rand.Rand) {
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	if goes {
		time.AfterFunc(time.Duration(r.IntN(60))*time.Millisecond, end)
	}
	body := map[string]any{"stream": stream}
	for k, v := range q.body {
		body[k] = v
	}
	data, _ := json.Marshal(body)
	in, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", bytes.NewReader(data))
	in.Header.Set("Content-Type", "application/json")
	text, failed, err := answeredBy(client, in, stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case goes && (ctx.Err() != nil || err != nil):
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

// answeredBy is the text of an answer, or that it is an error in the API's shape.
func answeredBy(client *http.Client, in *http.Request, stream bool) (text string, failed bool, err error) {
	a, err := client.Do(in)
	if err != nil {
		return "", false, err
	}
	defer a.Body.Close()
	data, err := io.ReadAll(a.Body)
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
			Choices []struct{ Text string }
			Error   *struct{ Message, Code string }
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
		text += part.Choices[0].Text
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

// TestSoak: clients that come and go ask a router, behind which servers and machines that read
// prompts are killed and stopped for a while, and ranks fail. Each request gets its text to the
// character, or an error; and what is not killed keeps its memory and goroutines, and holds nothing
// in the end. KRAIT_TEST_SOAK says for how long (2s).
func TestSoak(t *testing.T) {
	most, err := time.ParseDuration(os.Getenv("KRAIT_TEST_SOAK"))
	if err != nil {
		t.Skip("it takes as long as KRAIT_TEST_SOAK says: CI runs it for a minute")
	}
	s := newSoaked(t)
	list := s.questions(t, rand.New(rand.NewPCG(1, 2)))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	goroutines := func() float64 { return gauge(t, s.staysURL, "go_goroutines") + gauge(t, s.admin, "go_goroutines") }
	time.Sleep(200 * time.Millisecond) // checks
	before := goroutines()
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
					s.ask(client, list[r.IntN(len(list))], r.IntN(2) == 0, r.IntN(4) == 0, r)
				}
			}
		})
	}
	var resident [][]float64
	all.Go(func() { resident = s.faults(t, most, stop) })
	all.Wait()
	client.CloseIdleConnections()
	t.Logf("%d answered, %d answered by an error, %d ended by their clients; asked again %v, lost in the middle %v",
		s.ok, s.told, s.ended, gauge(t, s.admin, "krait_route_retries_total"), s.lost(t))
	for i, w := range s.wrong {
		if i < 10 {
			t.Error(w)
		}
	}
	if s.ok < 20 || s.ended == 0 {
		t.Error("that is no test")
	}
	if most > 30*time.Second && (s.told == 0 || gauge(t, s.admin, "krait_route_retries_total") == 0 || s.lost(t) == 0) {
		t.Error("nothing failed")
	}
	s.heldNothing(t, before, goroutines)
	flat(t, resident, most)
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

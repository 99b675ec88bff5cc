//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
	"github.com/krait-ml/krait/transfer/ucx"
)

// command is krait as a process of its own, and what it says.
func command(t *testing.T, args ...string) (c *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	c, out, errs = kraitCommand(t, args...), &bytes.Buffer{}, &bytes.Buffer{}
	c.Stdout, c.Stderr = out, errs
	return c, out, errs
}

// serving starts a prefill server, and returns its address.
func serving(t *testing.T, args ...string) (address string, c *exec.Cmd) {
	t.Helper()
	c, _, errs := command(t, append([]string{"serve", "prefill", "--listen", "127.0.0.1:0"}, args...)...)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "prefill at ")
	if err != nil || !ok {
		c.Process.Kill()
		c.Wait()
		t.Fatalf("%q, %v: %s", line, err, errs)
	}
	return address, c
}

// says is what krait generate says of a prompt, and what it says to standard error.
func says(t *testing.T, args ...string) (text, info string, err error) {
	t.Helper()
	c, out, errs := command(t, append([]string{"generate", "-n", "12"}, args...)...)
	err = c.Run()
	return out.String(), errs.String(), err
}

const genesis = "In the beginning God created the heaven and the earth. And the earth was without form, and void; and"

// TestServe: processes on other numbers of ranks continue prompts that another has prefilled,
// over TCP, by UCX, by TLS with certificates of both and a token; what does not fit is an error.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	want, _, err := says(t, genesis)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("token"), []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("other"), []byte("open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificates(t, dir)
	plain, _ := serving(t, "--tp", "2", "--token-file", file("token"))
	secured, _ := serving(t, "--token-file", file("token"), "--tls-cert", file("server.pem"), "--tls-key", file("server.key"), "--tls-client-ca", file("ca.pem"))
	by := []string{"tcp"}
	if _, err := ucx.Version(); err == nil {
		by = append(by, "ucx")
	} else {
		t.Log("NOT TESTED: ", err)
	}
	mine := []string{"--tls-ca", file("ca.pem"), "--tls-cert", file("client.pem"), "--tls-key", file("client.key"), "--token-file", file("token")}
	for _, transport := range by {
		for _, args := range [][]string{
			{"--prefill", plain, "--tp", "3", "--token-file", file("token")},
			append([]string{"--prefill", secured, "--prefill-only"}, mine...),
		} {
			args = append(args, "--prefill-transport", transport, genesis)
			text, info, err := says(t, args...)
			if err != nil || text != want || !strings.Contains(info, "tokens by the server") {
				t.Errorf("%q: %q, %v\n%s", args, text, err, info)
			}
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--prefill", plain}, "the token is not the server's"},
		{[]string{"--prefill", plain, "--token-file", file("other")}, "the token is not the server's"},
		{[]string{"--prefill", plain, "--token-file", file("none")}, "no such file"},
		{[]string{"--prefill", plain, "--token-file", file("token"), "--states", "ssm=bf16"}, "in f32, and the receiver in bf16"},
		{[]string{"--prefill", plain, "--token-file", file("token"), "-m", "../testdata/golden/mamba-a"}, `the model is "tiny-mamba"`},
		{[]string{"--prefill", plain, "--prefill-transport", "pigeon"}, `"pigeon"`},
		{[]string{"--token-file", file("token")}, "--token-file needs --prefill"},
		{[]string{"--prefill", plain, "--tls-cert", file("client.pem")}, "need each other"},
		{append([]string{"--prefill", secured, "--prefill-only"}, "--tls-ca", file("ca.pem"), "--token-file", file("token")), "certificate"},
		{[]string{"--prefill", secured, "--prefill-only", "--tls", "--token-file", file("token")}, "certificate"},
	} {
		if _, info, err := says(t, append(c.args, genesis)...); err == nil || !strings.Contains(info, c.want) {
			t.Errorf("%q: %v\n%s", c.args, err, info)
		}
	}
	for _, args := range [][]string{{"decode"}, {"decode", "--prefill", plain}, {"decode", "--prefill", "a:1,a:1"}, {"--prefill", "a:1"}, {"prefill", "--prefill-only"}, {"--lease", "5s"}, {"prefill", "--drain-notice", "5s"}, {"prefill", "--drain", "0s"}, {"prefill", "--no-page"}, {"--api-keys", file("none")}, {"--api-keys", file("token")}, {"--max-queue", "-1"}, {"--listen", "nowhere:x"}, {"prefill", "--lease", "0s"}, {"prefill", "--tls-key", file("server.key")}, {"prefill", "--tls-client-ca", file("ca.pem")}, {"prefill", "--listen", "nowhere:x"}} {
		root := newRoot()
		root.SetArgs(append([]string{"serve"}, args...))
		if err := root.Execute(); err == nil {
			t.Errorf("serve %q is not refused", args)
		}
	}
}

// TestServeKilled: a prefill process that is killed or stopped at any moment takes no text from
// who decodes, and one who decodes that is killed leaves the prefill process as it was.
func TestServeKilled(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(prop.Seed(t), 1))
	prompt := strings.Repeat(genesis, 8)
	want, _, err := says(t, prompt)
	if err != nil {
		t.Fatal(err)
	}
	fallbacks, signals := 0, []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGSTOP}
	if !goldens.All() {
		signals = signals[1:3]
	}
	for i, signal := range signals {
		address, server := serving(t, "--tp", "2")
		early := i < len(signals)/2 // before anybody asks
		if early {
			server.Process.Signal(signal)
			time.Sleep(100 * time.Millisecond)
		}
		timer := time.AfterFunc(time.Duration(r.IntN(600))*time.Millisecond, func() { server.Process.Signal(signal) })
		text, info, err := says(t, "--prefill", address, "--prefill-stall", "500ms", prompt)
		timer.Stop()
		if err != nil || text != want {
			t.Errorf("%v: %q, %v\n%s", signal, text, err, info)
		}
		if strings.Contains(info, "prefill in this process") {
			fallbacks++
		} else if early {
			t.Errorf("%v before it is asked, and the decode server has not prefilled the prompt:\n%s", signal, info)
		}
		server.Process.Kill()
	}
	t.Logf("%d of %d prompts were prefilled by the decode server", fallbacks, len(signals))

	address, _ := serving(t, "--lease", "2s", "--stall", "300ms")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for range len(signals) / 2 {
			c, _, _ := command(t, "generate", "--prefill", address, prompt)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			c.Process.Signal(signal)
			defer func() { c.Process.Kill(); c.Wait() }()
		}
	}
	if text, info, err := says(t, "--prefill", address, "--prefill-only", prompt); err != nil || text != want {
		t.Errorf("afterwards: %q, %v\n%s", text, err, info)
	}
}

// certificates writes an authority and two certificates that it has signed.
func certificates(t *testing.T, dir string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, data []byte) {
		check(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
	}
	now := time.Now()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	data, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	check(err)
	write("ca.pem", "CERTIFICATE", data)
	for i, name := range []string{"server", "client"} {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(err)
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(2 + i)), Subject: pkix.Name{CommonName: name}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		data, err := x509.CreateCertificate(rand.Reader, c, authority, &own.PublicKey, key)
		check(err)
		write(name+".pem", "CERTIFICATE", data)
		text, err := x509.MarshalECPrivateKey(own)
		check(err)
		write(name+".key", "EC PRIVATE KEY", text)
	}
}

// answering starts a server of the API, and returns its address.
func answering(t *testing.T, args ...string) (address string, c *exec.Cmd, errs *bytes.Buffer) {
	t.Helper()
	c, _, errs = command(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "serving at ")
	if err != nil || !ok {
		t.Fatalf("%q, %v: %s", line, err, errs)
	}
	return address, c, errs
}

// TestServePage: there is a page, and ranks are measured once a client has looked, unless there
// is to be none; a name that leads here from elsewhere is not answered.
func TestServePage(t *testing.T) {
	for _, off := range []bool{false, true} {
		address, c, _ := answering(t, "--tp", "2", "--speculate", "off", fmt.Sprintf("--no-page=%t", off))
		get := func(path, host string) (int, string) {
			q, err := http.NewRequest("GET", address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Host = host
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			return r.StatusCode, string(text)
		}
		if status, _ := get("/v1/models", "evil.example"); status != http.StatusMisdirectedRequest {
			t.Errorf("asked by another name: %d", status)
		}
		if off {
			for _, path := range []string{"/", "/board"} {
				if status, _ := get(path, ""); status != http.StatusNotFound {
					t.Errorf("with --no-page %s is %d", path, status)
				}
			}
		} else {
			if status, page := get("/", ""); status != http.StatusOK || !strings.HasPrefix(page, "<!doctype html>") {
				t.Errorf("the page is %d %.100s", status, page)
			}
			if _, text := get("/board", ""); !strings.Contains(text, `"lanes":null`) {
				t.Errorf("before anybody looked, the board says %.400s", text)
			}
			r, err := http.Post(address+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "In the", "max_tokens": 9, "ignore_eos": true}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			time.Sleep(250 * time.Millisecond)
			if _, text := get("/board", ""); !strings.Contains(text, `"prefill":6,"decode":8`) || !strings.Contains(text, `"ranks":[[[`) {
				t.Errorf("the board says %.400s", text)
			}
		}
		c.Process.Kill()
		c.Wait()
	}
}

// TestServeAPI: the command answers, goes on after SIGHUP, and on SIGTERM lets a request end that
// it has taken, and ends well.
func TestServeAPI(t *testing.T) {
	address, c, errs := answering(t, "--drain-notice", "1ms")
	r, err := http.Post(address+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "In the", "max_tokens": 500, "stream": true}`))
	if err != nil || r.StatusCode != 200 {
		t.Fatal(r, err)
	}
	defer r.Body.Close()
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("the stream ends by %v: %.300s", err, text)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
}

// TestServeDecode: a server has its prompts read by another process, on other ranks and in a
// codec, and reads them by itself once that is gone.
func TestServeDecode(t *testing.T) {
	reads, reader := serving(t, "--tp", "3")
	address, c, errs := answering(t, "decode", "--tp", "2", "--prefill", reads, "--state-codec", "int8/128")
	defer func() { c.Process.Kill(); c.Wait() }()
	ask := func() string {
		t.Helper()
		r, err := http.Post(address+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt": %q, "max_tokens": 3, "temperature": 0}`, genesis)))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if text, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v\n%s", r.StatusCode, text, err, errs)
		}
		r, err = http.Get(address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return string(text)
	}
	fetched := fmt.Sprintf("\nkrait_fetched_tokens_total{model_name=\"tiny-mamba\"} %d\n", len(genesis)-1)
	if text := ask(); !strings.Contains(text, fetched) || !strings.Contains(text, "\nkrait_fallbacks_total{model_name=\"tiny-mamba\"} 0\n") {
		t.Errorf("the prompt was not read elsewhere: %s\n%s", text, errs)
	}
	reader.Process.Kill()
	reader.Wait()
	if text := ask(); !strings.Contains(text, fetched) || strings.Contains(text, "\nkrait_fallbacks_total{model_name=\"tiny-mamba\"} 0\n") {
		t.Errorf("a server that is gone has prefilled a prompt: %s", text)
	}
}

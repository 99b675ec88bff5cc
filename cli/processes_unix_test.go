//go:build unix

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/covering"
	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/internal/prop"
)

// generating starts processes that generate together without end, and returns when rank 0 has
// printed something.
func generating(t *testing.T, n int, timeout time.Duration) ([]*exec.Cmd, []*bytes.Buffer) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "1")
	id := "file:" + filepath.Join(t.TempDir(), "rank0")
	cmds, errs := make([]*exec.Cmd, n), make([]*bytes.Buffer, n)
	first := make(chan error, 1)
	for r := range n {
		c := kraitCommand(t, "generate", "--ids", "--ignore-eos", "-n", "1000000", "--comm", "tcp", "--comm-id", id, "--comm-timeout", timeout.String(),
			"--world", fmt.Sprint(n), "--rank", fmt.Sprint(r), "1 2 3")
		errs[r] = &bytes.Buffer{}
		c.Stderr = errs[r]
		if r == 0 {
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := out.Read(make([]byte, 1))
				first <- err
				io.Copy(io.Discard, out)
			}()
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill() })
		cmds[r] = c
	}
	if err := <-first; err != nil {
		t.Fatalf("nothing is generated: %v\n%s", err, errs[0])
	}
	return cmds, errs
}

// ended waits for processes, and gives their states.
func ended(t *testing.T, cmds []*exec.Cmd, except int) {
	t.Helper()
	var all sync.WaitGroup
	for r, c := range cmds {
		if r == except {
			continue
		}
		all.Go(func() { c.Wait() })
	}
	all.Wait()
}

// TestKilled: a process that is killed at a random moment, whichever it is, ends the others at once
// with a line that names it; one that is stopped does within the bound. With KRAIT_TEST_ALL 20 are
// killed and two are stopped.
func TestKilled(t *testing.T) {
	seed := prop.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 3
	for try := range 22 {
		if !goldens.All() && try > 1 && try != 20 {
			continue // two at any moment, and one that is stopped
		}
		victim, signal, timeout := random.IntN(n), os.Signal(os.Kill), 20*time.Second
		want := fmt.Sprintf("rank %d ended unexpectedly", victim)
		if try >= 20 {
			victim, signal, timeout = try%2*2, syscall.SIGSTOP, 2*time.Second
			want = fmt.Sprintf("rank %d has ", victim)
		}
		cmds, said := generating(t, n, timeout)
		time.Sleep(time.Duration(random.Float64() * float64(20*time.Millisecond)))
		begun := time.Now()
		if err := cmds[victim].Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		ended(t, cmds, victim)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("try %d: the others end after %v", try, took)
		}
		cmds[victim].Process.Kill()
		cmds[victim].Wait()
		for r, c := range cmds {
			if r == victim {
				continue
			}
			if text := said[r].String(); c.ProcessState.ExitCode() != 1 || strings.Count(text, want) != 1 || strings.Count(text, "krait:") != 1 {
				t.Errorf("try %d: rank %d ends with %v and says %q, want %q", try, r, c.ProcessState, text, want)
			}
		}
	}
}

// TestSignals: a signal to rank 0 ends all, and well; one to another ends all with an error that
// names it.
func TestSignals(t *testing.T) {
	victims := []int{1, 0}
	if goldens.Few(t) {
		victims = victims[:1]
	}
	for _, victim := range victims {
		cmds, said := generating(t, 3, 20*time.Second)
		if err := cmds[victim].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended(t, cmds, -1)
		for r, c := range cmds {
			status, text := 1, "rank 1: terminated"
			switch {
			case r == victim:
				status, text = 128+int(syscall.SIGTERM), "terminated"
			case victim == 0:
				status, text = 0, ""
			}
			if got := c.ProcessState.ExitCode(); got != status || !strings.Contains(said[r].String(), text) {
				t.Errorf("signal to rank %d: rank %d ends with %d and says %q, want %d and %q", victim, r, got, said[r], status, text)
			}
		}
	}
}

// TestPick: what is chosen on the host, with its log-probabilities, is in processes what it is in
// one.
func TestPick(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	how := []string{"generate", "-q", "--temperature", "1", "--seed", "4", "--min-p", "0.05", "--logprobs", "3", "--logit-bias", "32=-2", "-n", "8", "And the LORD said"}
	want, err := kraitCommand(t, append(how, "--tp", "3")...).Output()
	if err != nil || len(want) == 0 {
		t.Fatalf("%q, %v", want, err)
	}
	id := "file:" + filepath.Join(t.TempDir(), "rank0")
	var cmds []*exec.Cmd
	var got, said bytes.Buffer
	for r := range 3 {
		c := kraitCommand(t, append(how, "--comm", "tcp", "--comm-id", id, "--world", "3", "--rank", fmt.Sprint(r))...)
		if r == 0 {
			c.Stdout, c.Stderr = &got, &said
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill() })
		cmds = append(cmds, c)
	}
	ended(t, cmds, -1)
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%q, want %q\n%s", &got, want, &said)
	}
}

// launchers start processes that are joined by MPI.
var launchers = map[string][]string{
	"Open MPI": {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"},
	"MPICH":    {"mpirun.mpich"},
}

// TestMPI: under each launcher, by default under one, a golden passes on two processes, with the
// differences, to the last bit, of ranks in one process, and the launcher gives rank 0's output
// alone. In CI one of four goldens does, also in two pipeline stages, and with KRAIT_TEST_ALL every
// one, on 1 to 4 processes.
func TestMPI(t *testing.T) {
	folders, ranks := covering.Drawn(t, goldens.Folders(t, "..")), []int{1, 2, 3, 4}
	if goldens.Few(nil) { // CI has a stage for it
		folders, ranks = []string{"../testdata/golden/mamba2-g1"}, []int{2}
	}
	names := slices.Sorted(maps.Keys(launchers))
	if goldens.Few(nil) {
		names = names[1:]
	}
	for i, name := range names {
		launcher := launchers[name]
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(launcher[0]); err != nil {
				t.Skipf("there is no %s", launcher[0])
			}
			for j := range max(len(folders), len(ranks)) { // each golden under each launcher, on other ranks
				compareMPI(t, launcher, folders[j%len(folders)], ranks[(i+j)%len(ranks)])
			}
			if !goldens.Few(nil) {
				compareMPI(t, launcher, folders[0], 2, "--mesh", "pp=2")
			}
		})
	}
}

// compareMPI compares processes of a launcher with ranks in one process, along tp or on a mesh.
func compareMPI(t *testing.T, launcher []string, dir string, n int, mesh ...string) {
	t.Helper()
	t.Setenv("GOMAXPROCS", "1")
	args := []string{"check", "--json", "--chunks", "16", dir}
	alone := mesh
	if mesh == nil {
		alone = []string{"--tp", fmt.Sprint(n)}
	}
	want, err := kraitCommand(t, slices.Concat(args, alone)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	c := kraitCommand(t, slices.Concat(args, []string{"--comm", "mpi"}, mesh)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // ranks that do not agree wait for each other
	defer cancel()
	mpi := exec.CommandContext(ctx, launcher[0], slices.Concat(launcher[1:], []string{"-np", fmt.Sprint(n)}, c.Args)...)
	mpi.Cancel = func() error { return mpi.Process.Signal(syscall.SIGTERM) } // it ends its processes
	mpi.WaitDelay = 10 * time.Second
	mpi.Env = c.Env
	var said bytes.Buffer
	mpi.Stderr = &said
	got, err := mpi.Output()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s in %d processes of %s: %v\n%s\n%s\nwant\n%s", dir, n, launcher[0], err, &said, got, want)
	}
}

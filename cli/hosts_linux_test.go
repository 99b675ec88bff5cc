package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/krait-ml/krait/internal/goldens"
)

// across are launchers that start two processes on the hosts of testdata/hosts.sh. AGENT stands for
// what runs a command on a host.
var across = []struct {
	name, program, comm, command string
	lost                         string // what it says when a host is lost
	ends                         bool   // and always ends by itself
}{
	{"Open MPI", "mpirun.openmpi", "--comm mpi", "mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent AGENT --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 " +
		"--mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2 --bind-to none -host 10.77.0.11:1,10.77.0.12:1 -np 2 KRAIT", "ORTE has lost communication with a remote daemon", true},
	{"MPICH", "mpirun.mpich", "--comm mpi", "env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 mpirun.mpich -launcher rsh -launcher-exec AGENT -iface switch -hosts 10.77.0.11,10.77.0.12 -n 2 KRAIT", silent, false},
	{"no launcher", "sh", "--comm tcp --comm-id tcp:10.77.0.11:29500 --comm-insecure --world 2 --rank \\$RANK",
		`sh -c 'RANK=1 AGENT 10.77.0.12 KRAIT & RANK=0 AGENT 10.77.0.11 KRAIT; status=$?; wait; exit $status'`, silent, true},
}

// unfinished is what ranks say where MPI_Finalize hangs; MPICH 4.0.2 over TCP does so in some runs.
const unfinished = "does not return from MPI_Finalize; all messages had arrived, so results are complete"

const silent = "rank 1 has been silent for 4s: it hangs, was stopped, or cannot be reached"

// TestHosts runs ranks on two hosts, network namespaces that the test makes: the results have the
// bits of one process, also over a slow link, and all that ranks send goes over the link. When the
// link is lost, both ranks end with an error that names the other.
func TestHosts(t *testing.T) {
	if !goldens.All() {
		t.Skip("with KRAIT_TEST_ALL: ranks on two hosts take half a minute")
	}
	if out, err := onHosts(t, t.TempDir(), "true"); err != nil {
		t.Skipf("network namespaces with veth pairs cannot be made here: %v: %s", err, out)
	}
	want := goldenText(t)
	for _, l := range across {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(l.program); err != nil {
				t.Skipf("there is no %s", l.program)
			}
			run := func(t *testing.T, script, args string) (string, error) {
				dir := t.TempDir()
				program := kraitCommand(t).Path + " " + args + " " + l.comm
				command := strings.NewReplacer("AGENT", dir+"/agent", "KRAIT", program).Replace(l.command)
				return onHosts(t, dir, strings.NewReplacer("DIR", dir, "COMMAND", command).Replace(script))
			}
			for _, link := range []string{"", "slow"} {
				t.Run(link+"link", func(t *testing.T) {
					begun := time.Now()
					out, err := run(t, strings.Replace(counted, "SLOW", map[string]string{"": "true", "slow": slowed}[link], 1), "check --json --chunks 16 "+golden)
					checkHosts(t, out, err, want, link == "slow", time.Since(begun))
				})
			}
			t.Run("lost", func(t *testing.T) {
				out, err := run(t, lost, "generate --ids --ignore-eos -n 1000000 --comm-timeout 4s 1,2,3")
				if err != nil || !strings.Contains(out, l.lost) || !strings.Contains(out, "\nleft 0\n") || strings.Contains(out, "\nstatus 0\n") {
					t.Errorf("%v: %s", err, out)
				}
				if l.ends && strings.Contains(out, "\nstatus 124\n") {
					t.Errorf("the launcher does not end by itself\n%s", out)
				}
			})
		})
	}
}

const golden = "../testdata/golden/mamba2-g1"

// Scripts beside hosts: one that says how many bytes a host sent, with a slow link or not; and one
// that takes the link to the second host away when text comes, and says how the command ended and
// how many processes of krait are left. It stops launchers that still wait for the lost host.
const (
	slowed  = "DIR/agent 10.77.0.12 tc qdisc add dev eth0 root tbf rate 10mbit burst 64kb latency 1s"
	counted = `SLOW && COMMAND; status=$?; DIR/agent 10.77.0.12 "sed -n 's/^ *eth0: *//p' /proc/net/dev"; exit $status`
	lost    = `COMMAND >DIR/text & pid=$!
until [ -s DIR/text ]; do kill -0 $pid; sleep 0.05; done
ip link set port2 down
left() { for p in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$p 2>/dev/null; echo; done | grep -c '^[^ ]*cli\.test generate'; }
for i in $(seq 50); do [ $(left) -gt 0 ] || break; sleep 0.2; done
for i in $(seq 20); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
echo
if kill -9 $pid 2>/dev/null; then echo "status 124"; else wait $pid && echo "status 0" || echo "status $?"; fi
echo "left $(left)"`
)

// onHosts runs a script beside the hosts, and returns what it says. Nothing that it starts is left.
func onHosts(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "-rnmpf", "--kill-child", "--mount-proc", "testdata/hosts.sh", dir, "bash", "-c", script)
	c.Env = append(os.Environ(), asKrait+"=1", "GOMAXPROCS=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	c.WaitDelay = time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

// goldenText is what two ranks in one process say of a golden.
func goldenText(t *testing.T) string {
	t.Helper()
	c := kraitCommand(t, "check", "--json", "--chunks", "16", "--tp", "2", golden)
	c.Env = append(c.Env, "GOMAXPROCS=1")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// checkHosts compares results, and looks at what the second host sent: bytes by the rank, and over
// a slow link no more than it lets through.
func checkHosts(t *testing.T, out string, err error, want string, slow bool, took time.Duration) {
	t.Helper()
	if strings.Contains(out, unfinished) {
		t.Log("MPI_Finalize does not return")
		err = nil
	}
	if err != nil || !strings.Contains(out, want) {
		t.Fatalf("%v: %s\nwant %s", err, out, want)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	counts := strings.Fields(lines[len(lines)-1])
	if len(counts) < 9 {
		t.Fatal(out)
	}
	sent, err := strconv.ParseFloat(counts[8], 64)
	if least := 1e5; err != nil || sent < least {
		t.Errorf("the second host sent %s bytes, %v", counts[8], err)
	}
	const rate, burst = 10e6 / 8, 64 << 10
	if least := (sent - burst) / rate; slow && took.Seconds() < least {
		t.Errorf("%g bytes went over the slow link in %v, which takes %g seconds", sent, took, least)
	}
	t.Log(fmt.Sprintf("%.0f bytes in %v", sent, took.Round(time.Millisecond)), filepath.Base(golden))
}

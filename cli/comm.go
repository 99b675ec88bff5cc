package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/comm/mpi"
	"github.com/krait-ml/krait/exec/comm/tcp"
	"github.com/spf13/cobra"
)

// commFlags say in which processes the ranks of a model are. All processes run the same
// command; rank 0 does what it says, and the others follow it.
type commFlags struct {
	kind        string
	id          string
	rank, world int
	tokenFile   string
	insecure    bool
	timeout     time.Duration

	processes *comm.Processes // from connect on; nil: all ranks are here
	opened    bool            // a model was, so that others are not left waiting
}

func (f *commFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.kind, "comm", "local", "how ranks communicate: local (one process), or mpi, tcp or nccl (one per rank)")
	c.Flags().StringVar(&f.id, "comm-id", "", "where rank 0 is found (tcp, nccl): tcp:HOST:PORT, or file:PATH (a shared file)")
	c.Flags().IntVar(&f.rank, "rank", 0, "rank of this process (tcp, nccl)")
	c.Flags().IntVar(&f.world, "world", 0, "number of processes (tcp, nccl)")
	c.Flags().StringVar(&f.tokenFile, "comm-token-file", "", "file with a secret that all processes share (tcp, nccl)")
	c.Flags().BoolVar(&f.insecure, "comm-insecure", false, "let processes join without a secret (tcp, nccl)")
	c.Flags().DurationVar(&f.timeout, "comm-timeout", comm.DefaultTimeout, "timeout to join, and of a silent or stuck process, which then ends all")
	detail(c, "comm", "all processes run the same command; mpirun starts those of mpi. nccl is tcp, with NCCL between GPUs.")
	expert(c, "comm-id", "rank", "world", "comm-token-file", "comm-insecure", "comm-timeout")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error { return f.end(c, run(c, args)) }
}

// follows reports whether rank 0 is in another process.
func (f *commFlags) follows() bool { return f.processes != nil && f.processes.Rank() > 0 }

// errFollowed ends a command of a process that has followed rank 0 to its end.
var errFollowed = errors.New("followed")

// connect finds the other processes, once, as the flags say.
func (f *commFlags) connect(c *cobra.Command, device string) (*comm.Processes, error) {
	if f.processes != nil {
		return f.processes, nil
	}
	if err := f.check(c, device); err != nil || f.kind == "local" {
		return nil, err
	}
	link, err := f.link(c)
	if err != nil {
		return nil, fmt.Errorf("--comm %s: %w", f.kind, err)
	}
	f.processes = comm.Connect(link, comm.Options{Timeout: f.timeout})
	return f.processes, nil
}

// check looks at what flags say together.
func (f *commFlags) check(c *cobra.Command, device string) error {
	wires := f.kind == "tcp" || f.kind == "nccl"
	switch {
	case f.kind != "local" && f.kind != "mpi" && !wires:
		return fmt.Errorf("--comm is %q; it must be local, mpi, tcp or nccl", f.kind)
	case !wires && slices.ContainsFunc(ofWires, c.Flags().Changed):
		return fmt.Errorf("--%s are for --comm tcp and nccl; leave them out with --comm %s", strings.Join(ofWires, ", --"), f.kind)
	case f.insecure && f.tokenFile != "":
		return errors.New("--comm-insecure and --comm-token-file exclude each other: give one of them")
	case wires && (f.id == "" || f.world == 0 || !c.Flags().Changed("rank")):
		return fmt.Errorf("--comm %s needs --comm-id, --world and --rank: the address of rank 0, the number of processes, and the rank of this one", f.kind)
	case f.kind == "nccl" && device == "cpu":
		return errors.New("--comm nccl is for GPUs: give --device cuda, or --comm tcp")
	case f.timeout < 100*time.Millisecond:
		return fmt.Errorf("--comm-timeout is %v; it must be at least 100ms", f.timeout)
	}
	return nil
}

// ofWires are the flags of processes that no launcher joins.
var ofWires = []string{"comm-id", "rank", "world", "comm-token-file", "comm-insecure"}

// commNames are all flags of commFlags.
var commNames = slices.Concat(ofWires, []string{"comm", "comm-timeout"})

// link joins the other processes.
func (f *commFlags) link(c *cobra.Command) (comm.Link, error) {
	if f.kind == "mpi" {
		ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
		defer cancel()
		return mpi.Join(ctx)
	}
	token, err := readToken("--comm-token-file", f.tokenFile)
	if err != nil {
		return nil, err
	}
	return tcp.Join(c.Context(), tcp.Options{Rank: f.rank, World: f.world, ID: f.id, Token: token, Insecure: f.insecure, Timeout: f.timeout,
		Warn: func(format string, args ...any) {
			fmt.Fprintln(c.ErrOrStderr(), "warning:", printable(fmt.Sprintf(format, args...)))
		}})
}

// end leaves the other processes, with the error unless they know it.
func (f *commFlags) end(c *cobra.Command, err error) error {
	p := f.processes
	if p == nil {
		return err
	}
	followed := errors.Is(err, errFollowed)
	why := err
	if f.opened || followed {
		why = nil
	}
	if cause := context.Cause(c.Context()); why != nil && cause != nil {
		why = cause
	}
	left := p.Close(why)
	switch {
	case followed:
		return left
	case err == nil:
		return left
	case p.Rank() > 0:
		return fmt.Errorf("(rank %d of %d) %w", p.Rank(), p.Ranks(), err)
	}
	return err
}

// follow lets a process follow rank 0 on models that rank 0 opens in the same order; open
// opens them.
func (f *commFlags) follow(ctx context.Context, open ...func() (*krait.Model, error)) error {
	ended := make(chan error, len(open))
	for _, next := range open {
		m, err := next()
		if err != nil {
			return err
		}
		go func() {
			err := m.Follow(ctx)
			m.Close()
			ended <- err
		}()
	}
	var first error
	for range open {
		if err := <-ended; first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	return errFollowed
}

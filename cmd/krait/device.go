package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/cuda/devices"
	"github.com/krait-ml/krait/exec/cuda/driver"
	"github.com/spf13/cobra"
)

// deviceFlags are the flags of every command that runs a model.
type deviceFlags struct {
	name    string
	options devices.Options
	prepare func(*cuda.Device) error // of a GPU, before a model is opened on it; nil: nothing
}

func (f *deviceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "device", "cpu", devices.Help)
	c.Flags().StringVar(&f.options.Math, "math", "f32", "on a GPU, how products of many rows are computed: f32, or bf16 on tensor cores")
	c.Flags().BoolVar(&f.options.NoGraphs, "no-graphs", false, "on a GPU, launch every kernel by itself")
}

func (f *deviceFlags) open() (exec.Device, error) {
	d, err := devices.Open(f.name, f.options)
	if err != nil {
		return nil, explained{err}
	}
	if gpu, ok := d.(*cuda.Device); ok && f.prepare != nil {
		if err := f.prepare(gpu); err != nil {
			return nil, explained{err}
		}
	}
	return d, nil
}

// explained is an error with what to do about it, where the driver knows.
type explained struct{ error }

func (e explained) Error() string { return driver.Explain(e.error) }
func (e explained) Unwrap() error { return e.error }

func newDevices() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "devices",
		Short: "List GPUs, the links between them, and the libraries",
		Long: `Devices lists what --device cuda would use: each GPU, how it reaches the others,
and the driver, cuBLAS and NCCL with their versions. Where CUDA cannot be used it
says why, and what to do.

Krait needs the NVIDIA driver (for CUDA 12 or later) and nothing else: cuBLAS
makes prompts faster, NCCL lets ranks have a GPU each. KRAIT_CUDA_PATH names a
folder to look for these two in first.`,
		Example: `  krait devices
  krait devices --device cuda-sim:2`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := c.OutOrStdout()
			fmt.Fprintln(w, "cpu: always there")
			d, err := devices.Driver(name)
			if err != nil {
				fmt.Fprintf(w, "%s: cannot be used\n%s\n", name, indent(driver.Explain(err)))
				return nil
			}
			return listDevices(w, d)
		},
	}
	c.Flags().StringVar(&name, "device", "cuda", "cuda or cuda-sim")
	return c
}

func listDevices(w io.Writer, d driver.Driver) error {
	list, err := d.Devices()
	if err != nil {
		fmt.Fprintf(w, "%s: cannot be used\n%s\n", d.Name(), indent(driver.Explain(err)))
		return nil
	}
	fmt.Fprintf(w, "%s:\n", d.Name())
	for _, x := range list {
		fmt.Fprintf(w, "  GPU %s\n", x)
		for _, l := range x.Links {
			how := "through the host"
			switch {
			case l.Atomics:
				how = "directly, with atomics (NVLink or alike)"
			case l.Access:
				how = "directly (PCIe)"
			}
			fmt.Fprintf(w, "    reaches GPU %d %s\n", l.Device, how)
		}
	}
	for _, v := range d.Versions() {
		switch {
		case v.Missing != nil:
			fmt.Fprintf(w, "  %s: missing\n%s\n", v.Name, indent(indent(driver.Explain(v.Missing))))
		case v.Path != "":
			fmt.Fprintf(w, "  %s %s (%s)\n", v.Name, v.Version, v.Path)
		default:
			fmt.Fprintf(w, "  %s %s\n", v.Name, v.Version)
		}
	}
	return nil
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/krait-ml/krait/cost"
	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/devices"
	kernelscpu "github.com/krait-ml/krait/kernels/cpu"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const deviceHelp = "device: cpu, cuda, cuda-sim (simulated; cuda-sim:4: four GPUs) or gorgonia-cu"

// autoHelp is deviceHelp for commands that may choose.
const autoHelp = "device: auto, cpu, cuda, cuda-sim (simulated; cuda-sim:4: four) or gorgonia-cu"

// deviceFlags are the flags of every command that runs a model.
type deviceFlags struct {
	name    string
	options devices.Options
	peers   bytesOrNone              // options.PeerBytes, where it was given
	given   *pflag.Flag              // what says them
	prepare func(*cuda.Device) error // of a GPU, before a model is opened on it; nil: nothing

	flag      *pflag.Flag // --device
	reference bool        // plain float64 kernels run
	verbose   bool        // say why it is the CPU
	only      string      // why it must be the CPU if it is chosen; empty: it need not
	settled   bool        // auto and small are known:
	auto      bool        // it is chosen for each model
	small     bool        // also of few weights
}

func (f *deviceFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.name, "device", "cpu", autoHelp)
	f.flag = c.Flags().Lookup("device")
	f.flag.DefValue = autoName // with weights from autoBytes on
	c.Flags().BoolVar(&f.verbose, "verbose", false, "say why the CPU is chosen")
	c.Flags().StringVar(&f.options.Math, "math", "f32", "precision of products: f32, bf16 (bf16 weights), int8 (CPUs, block formats)")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "precision" {
			name = "math"
		}
		return pflag.NormalizedName(name)
	})
	c.Flags().BoolVar(&f.options.NoGraphs, "no-graphs", false, "launch kernels one by one on GPUs, without CUDA graphs")
	c.Flags().BoolVar(&f.options.NoDependent, "no-dependent-launch", false, "disable programmatic dependent launch (GPUs of compute capability 9.0+)")
	c.Flags().BoolVar(&f.options.BatchInvariant, "batch-invariant", false, "on GPUs, make no text depend on the others of its batch (always so on CPUs)")
	f.given = c.Flags().VarPF(&f.peers, "peer-bytes", "", "largest all-reduce over peer memory; NCCL above it; 0: none (default 512KiB)")
	detail(c, "math", "bf16 rounds activations to bf16, on CPUs where sums have 512 terms or more; GPUs, AMX and AVX512_BF16 of AMD gain speed by it, other CPUs do not. int8 rounds activations to 8 bits where weights are in GGUF's 4 to 8 bits. --precision is an alias.")
	detail(c, "device", "auto takes GPUs if there are any and the weights fit, otherwise the CPU; without --device only for weights from 100 MB on. cuda-sim is slow and strict; gorgonia-cu goes through gorgonia.org/cu, if it is built in.")
	detail(c, "batch-invariant", "docs/numerics.md says what it costs.")
	detail(c, "peer-bytes", "all-reduces up to this size, rounded up to a multiple of 4KiB, read the peers' memory directly; --hw may give the default.")
	expert(c, "verbose", "no-graphs", "no-dependent-launch", "peer-bytes")
}

// peerBytes returns the largest all-reduce over peer memory, in bytes: of the flag, or else of the
// hardware profile of --hw, if one is given.
func (f *deviceFlags) peerBytes(hardware string) (int, error) {
	switch {
	case f.given.Changed && f.peers.byteCount == 0:
		return -1, nil
	case f.given.Changed:
		return int(f.peers.byteCount), nil
	case hardware != "" && strings.HasPrefix(f.name, "cuda"):
		if info, err := os.Stat(hardware); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			return 0, nil // a pipe is read once, by the strategy
		}
		p, err := cost.Find(hardware)
		if err != nil {
			return 0, err
		}
		return int(p.Link.Peers.Value), nil
	}
	return 0, nil
}

// about names the device, and the precision of products where it is not f32, or where whole blocks
// of prompts have products of their own; on a CPU with the instruction set.
func (f *deviceFlags) about() string {
	text, math := f.name, cmp.Or(f.options.Math, "f32")
	set, err := kernelscpu.ChosenISA()
	onCPU := f.name == "cpu" && err == nil && !f.reference
	if math != "f32" || onCPU && slices.Contains(kernelscpu.WideMaths(set), math) {
		text += ", math " + math
		if onCPU {
			text += " by " + set
		}
	}
	return text
}

// openDevice is replaced in tests of failing ranks.
var openDevice = devices.Open

// open opens the device, for ranks on the hardware profile of that name, if any.
func (f *deviceFlags) open(hardware string) (_ exec.Device, err error) {
	if f.options.PeerBytes, err = f.peerBytes(hardware); err != nil {
		return nil, err
	}
	if f.name == autoName { // of a command that does not choose
		f.name = "cpu"
	}
	d, err := openDevice(f.name, f.options)
	if err != nil {
		return nil, driverError{err}
	}
	if gpu, ok := d.(*cuda.Device); ok && f.prepare != nil {
		if err := f.prepare(gpu); err != nil {
			return nil, driverError{err}
		}
	}
	return d, nil
}

// driverError adds what to do about an error, if the driver knows.
type driverError struct{ error }

func (e driverError) Error() string { return driver.Explain(e.error) }
func (e driverError) Unwrap() error { return e.error }

func newDevices() *cobra.Command {
	var name string
	var out output
	c := &cobra.Command{
		Use:   "devices",
		Short: "List GPUs, the links between them, and the libraries",
		Long: `Devices lists what --device cuda would use: each GPU, its links to the others, and the
driver, cuBLAS and NCCL with their versions. If CUDA cannot be used it says why and what to
do; with --device the exit status is then 1.

Krait needs the NVIDIA driver only (for CUDA 12 or later): cuBLAS speeds up prefill, NCCL
connects ranks on several GPUs. KRAIT_CUDA_PATH names a folder to search for both first.`,
		Example: `  krait devices
  krait devices --device cuda-sim:2`,
		Args: takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := findDevices(name)
			if err != nil {
				return err
			}
			err = out.print(c, list, list.print)
			if err == nil && list.Error != "" && c.Flags().Changed("device") {
				return errFailed
			}
			return err
		},
	}
	c.Flags().StringVar(&name, "device", "cuda", deviceHelp)
	out.add(c)
	return c
}

// deviceList is what a device has.
type deviceList struct {
	CPU       deviceCPU       `json:"cpu"`
	Device    string          `json:"device"`
	Error     string          `json:"error,omitempty"` // why it cannot be used
	GPUs      []deviceGPU     `json:"gpus,omitempty"`
	Libraries []deviceLibrary `json:"libraries,omitempty"`
}

// deviceCPU is the instruction set whose kernels run, those that could, and the values of --math
// with wide products.
type deviceCPU struct {
	Set  string   `json:"instruction_set"`
	Sets []string `json:"instruction_sets"`
	Wide []string `json:"wide_math,omitempty"`
}

type deviceGPU struct {
	Index      int          `json:"index"`
	Name       string       `json:"name"`
	Capability [2]int       `json:"compute_capability"`
	Memory     int64        `json:"memory_bytes"`
	SMs        int          `json:"multiprocessors"`
	PCI        string       `json:"pci"`
	Links      []deviceLink `json:"links,omitempty"`
	text       string
}

type deviceLink struct {
	GPU int    `json:"gpu"`
	How string `json:"how"`
}

type deviceLibrary struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Missing string `json:"missing,omitempty"`
}

// findDevices looks at a device by name; an unknown name is an error.
func findDevices(name string) (*deviceList, error) {
	set, err := kernelscpu.ChosenISA()
	if err != nil {
		return nil, err
	}
	list := &deviceList{Device: name, CPU: deviceCPU{set, kernelscpu.ISAs(), kernelscpu.WideMaths(set)}}
	if name == "cpu" {
		return list, nil
	}
	d, err := devices.Driver(name)
	var known *driver.Error
	if err != nil && !errors.As(err, &known) {
		return nil, err
	}
	var found []driver.DeviceInfo
	if err == nil {
		list.Device = d.Name()
		found, err = d.Devices()
	}
	if err != nil {
		list.Error = driver.Explain(err)
		return list, nil
	}
	for _, x := range found {
		g := deviceGPU{x.Index, x.Name, x.Capability, x.Memory, x.SMs, x.PCI, nil, x.String()}
		for _, l := range x.Links {
			how := "through the host"
			switch {
			case l.Atomics:
				how = "directly, with atomics (NVLink or alike)"
			case l.Access:
				how = "directly (PCIe)"
			}
			g.Links = append(g.Links, deviceLink{l.Device, how})
		}
		list.GPUs = append(list.GPUs, g)
	}
	for _, v := range d.Versions() {
		list.Libraries = append(list.Libraries, deviceLibrary{v.Name, v.Version, v.Path, driver.Explain(v.Missing)})
	}
	return list, nil
}

func (l *deviceList) print(w io.Writer) {
	fmt.Fprintf(w, "cpu: %s, of %s (%s chooses)\n", l.CPU.Set, strings.Join(l.CPU.Sets, ", "), kernelscpu.ISAVariable)
	if len(l.CPU.Wide) > 0 {
		fmt.Fprintf(w, "  wide products by %s: --math %s\n", l.CPU.Set, strings.Join(l.CPU.Wide, ", "))
	}
	switch {
	case l.Error != "":
		fmt.Fprintf(w, "%s: cannot be used\n%s\n", l.Device, indent(l.Error))
	case l.Device != "cpu":
		fmt.Fprintf(w, "%s:\n", l.Device)
	}
	for _, g := range l.GPUs {
		fmt.Fprintf(w, "  GPU %s\n", g.text)
		for _, x := range g.Links {
			fmt.Fprintf(w, "    reaches GPU %d %s\n", x.GPU, x.How)
		}
	}
	for _, v := range l.Libraries {
		switch {
		case v.Missing != "":
			fmt.Fprintf(w, "  %s: missing\n%s\n", v.Name, indent(indent(v.Missing)))
		case v.Path != "":
			fmt.Fprintf(w, "  %s %s (%s)\n", v.Name, v.Version, v.Path)
		default:
			fmt.Fprintf(w, "  %s %s\n", v.Name, v.Version)
		}
	}
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/krait-ml/krait/cuda/driver"
	"github.com/krait-ml/krait/exec/cuda"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/spf13/cobra"
)

// autoName is the device that takes a GPU if there is one and the model fits.
const autoName = "auto"

// severalProcesses is why nothing is chosen for ranks in processes, which would choose apart.
const severalProcesses = "the ranks are in several processes, which must name the same --device"

// Tests replace them: the device that is chosen, its driver, and the bytes of weights from which on
// one is chosen unless --device says which.
var (
	autoDevice       = "cuda"
	autoDriver       = devices.Driver
	autoBytes  int64 = 100e6
)

// choose chooses the device for a model, unless --device names one, and says which and why on
// standard error: a GPU, or the CPU if the GPUs have no room for the model. Other reasons for the
// CPU are said with --verbose only.
func (f *modelFlags) choose(c *cobra.Command, dir string, quiet bool) {
	d := &f.device
	if !d.settled {
		d.settled = true
		d.auto = d.name == autoName || !d.flag.Changed
		d.small = d.name == autoName
	}
	if !d.auto {
		return
	}
	gpus, why, full := f.gpus(c, dir)
	d.name = "cpu"
	switch {
	case gpus != "":
		d.name = autoDevice
		if !quiet {
			f.remark(c, fmt.Sprintf("using %s: %s; --device cpu uses the CPU", d.name, gpus))
		}
	case d.verbose || full && !quiet:
		f.remark(c, "using the CPU: "+why)
	}
}

// remark says something of the device.
func (f *modelFlags) remark(c *cobra.Command, text string) {
	if f.inform != nil {
		f.inform(text)
		return
	}
	fmt.Fprintln(c.ErrOrStderr(), "krait:", printable(text))
}

// gpus describes the GPUs that are there and that a model fits on, or says why it cannot run there;
// full: they have no room for it.
func (f *modelFlags) gpus(c *cobra.Command, dir string) (found, why string, full bool) {
	d := &f.device
	switch {
	case d.only != "":
		return "", d.only, false
	case f.options.Processes != nil:
		return "", severalProcesses, false
	case f.options.Reference:
		return "", "--reference has its kernels there", false
	case d.options.Math == "int8":
		return "", "--math int8 is for it", false
	case f.options.Workers > 0:
		return "", "--threads is for it", false
	case dir == "-":
		return "", "the graph comes from standard input, which is read once", false
	case !d.small && f.random == "" && storedBytes(dir) < autoBytes:
		return "", fmt.Sprintf("the weights have less than %s", driver.Bytes(autoBytes)), false
	}
	gpu, err := autoDriver(autoDevice)
	if err != nil {
		return "", firstLine(err), false
	}
	list, err := gpu.Devices()
	switch {
	case err != nil:
		return "", firstLine(err), false
	case len(list) == 0:
		return "", "there is no GPU", false
	}
	weights, err := weightBytes(c, dir)
	switch {
	case err != nil: // opening the model says why
		return "", firstLine(err), false
	case !d.small && weights < autoBytes:
		return "", fmt.Sprintf("the weights have %s, less than %s", driver.Bytes(weights), driver.Bytes(autoBytes)), false
	}
	found, why = fits(&cuda.Device{Driver: gpu}, list, weights, max(1, f.options.Sharding.Ranks))
	return found, why, found == ""
}

// fits says that the weights of ranks fit on GPUs, or why not. A fifth of what a GPU has for a
// model, and of what is free there, is for states, caches and activations.
func fits(d *cuda.Device, list []driver.DeviceInfo, weights int64, ranks int) (found, why string) {
	memory, share := d.Memory(ranks)
	each := weights * int64(share) / int64(ranks)
	if each > memory/5*4 {
		return "", fmt.Sprintf("a GPU would have weights of %s, more than four fifths of the %s that a model may take on %s", driver.Bytes(each), driver.Bytes(memory), list[0].Name)
	}
	free, err := d.Free(ranks)
	switch {
	case err != nil:
		return "", firstLine(err)
	case each > free/5*4:
		return "", fmt.Sprintf("a GPU would have weights of %s, more than four fifths of the %s that are free on %s", driver.Bytes(each), driver.Bytes(free), list[0].Name)
	}
	name := list[0].Name
	if n := ranks / share; n > 1 {
		name = fmt.Sprintf("%d × %s", n, name)
	}
	return fmt.Sprintf("%s has room for the weights of %s", name, driver.Bytes(weights)), ""
}

// storedBytes returns the bytes of a file, or of the files of weights in a folder.
func storedBytes(path string) (sum int64) {
	files := []string{path}
	entries, _ := os.ReadDir(path) // or it is a file
	for _, e := range entries {
		if slices.Contains([]string{".safetensors", ".bin", ".gguf"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}

// weightBytes returns the bytes of a model's weights.
func weightBytes(c *cobra.Command, path string) (sum int64, err error) {
	g, err := makeGraph(c, path)
	if err != nil {
		return 0, err
	}
	for _, x := range g.WeightFormats() {
		sum += x.Bytes
	}
	return sum, nil
}

// instead leaves a GPU that was chosen and cannot open the model, and reports whether the CPU may
// be tried.
func (f *modelFlags) instead(c *cobra.Command, err error) bool {
	d := &f.device
	if !d.auto || d.name == "cpu" || c.Context().Err() != nil {
		return false
	}
	f.remark(c, fmt.Sprintf("using the CPU: %s cannot open the model: %s", d.name, firstLine(err)))
	d.name = "cpu"
	return true
}

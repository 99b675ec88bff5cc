package cli

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/devices"
	"github.com/krait-ml/krait/lowering"
)

// faultyEvery is the variable of the environment that lets a rank fail in one of this many
// collectives.
const faultyEvery = "KRAIT_TEST_FAULTY"

// failSometimes makes devices on which ranks fail, if the environment asks for them.
func failSometimes() {
	every, err := strconv.Atoi(os.Getenv(faultyEvery))
	if err != nil {
		return
	}
	openDevice = func(name string, o devices.Options) (exec.Device, error) {
		d, err := devices.Open(name, o)
		return &faulty{d, every}, err
	}
}

// faulty is a device on which a rank fails now and then, in the middle of a step.
type faulty struct {
	exec.Device
	every int
}

func (f *faulty) Open(local []*lowering.Schedule, world comm.World, o exec.Setup) (exec.Machine, error) {
	return f.Device.Open(local, &faultyWorld{world, f.every}, o)
}

type faultyWorld struct {
	comm.World
	every int
}

func (w *faultyWorld) Join(rank int) (comm.Comm, error) {
	c, err := w.World.Join(rank)
	return &faultyComm{c, w.every}, err
}

type faultyComm struct {
	comm.Comm
	every int
}

func (c *faultyComm) Run(x *comm.Collective) error {
	if rand.IntN(c.every) == 0 {
		return errors.New("a rank fails, as the test wants it")
	}
	return c.Comm.Run(x)
}

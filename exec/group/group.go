// Package group runs a model whose ranks are in several processes: rank 0 leads, and the others
// follow.
//
// Each process opens an engine with a [Device] of its own. The engine of rank 0 is used as any
// other; in the other processes only Follow and Close can be called. Requests, slots and pages are
// known to rank 0 alone, so processes cannot disagree about them.
package group

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/exec/comm"
	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/lowering"
)

// Device opens this process's rank of a group on another device, once all processes have agreed on
// what they run.
type Device struct {
	exec.Device
	Group *comm.Group
}

// Pipelines says that ranks may be in stages and replicas, if they may on the device below, which
// opens them.
func (d *Device) Pipelines() {}

// Open opens the machine of this process's rank: on rank 0 one that runs all ranks, elsewhere an
// [exec.Follower]. An error here ends all processes.
func (d *Device) Open(schedules []*lowering.Schedule, world comm.World, o exec.Setup) (m exec.Machine, err error) {
	if world != comm.World(d.Group) {
		return nil, errors.New("the engine's World is not the device's group; give Options.World the same *comm.Group")
	}
	defer func() {
		if _, all := err.(disagreement); all {
			d.Group.Processes().End(err)
		} else if err != nil {
			d.Group.Processes().Fail(err)
			err = d.Group.Processes().Err()
		}
	}()
	hosts, err := agree(d.Group, d.Device, schedules, &o)
	if err != nil {
		return nil, err
	}
	rank := d.Group.Rank()
	for r, h := range hosts {
		if h == hosts[rank] {
			o.LocalRanks++
			if r < rank {
				o.LocalRank++
			}
		}
	}
	o.Follower = rank > 0
	own, err := exec.Open(d.Device, schedules[rank:rank+1], d.Group, o)
	if err != nil {
		return nil, err
	}
	if rank > 0 {
		f, err := newFollower(own, d.Group, schedules, o.CheckFiles)
		if err == nil {
			d.Group.Send(0, []byte{succeeded})
		}
		return f, err
	}
	for r := 1; r < len(hosts); r++ {
		if _, err := d.Group.Receive(r, false); err != nil {
			own.Close()
			return nil, err
		}
	}
	return newLeader(own, d.Group, schedules), nil
}

// command is a call of the machine of another rank, except for Step: see encodeStep. The bytes that
// a Write call writes follow it in the message.
type command struct {
	Call  call
	Index int              // a slot, a page or a cache's buffer; GrowSlots and GrowPages: how many
	To    int              // CopySlot: a slot; CopyRows: a page
	At    int64            // first byte to read or write
	Bytes int              // to read
	Rows  []state.PageRows // of CopyRows, ReadRows and WriteRows
	// Replays are those of Replay.
	Replays []state.Replay
}

// call is a method of a machine.
type call byte

const (
	callGrowSlots call = iota + 1
	callClearSlot
	callCopySlot
	callReadSlot
	callWriteSlot
	callGrowPages
	callCopyRows
	callReadRows
	callWriteRows
	callReadPage
	callWritePage
	callReplay
	callClose
)

// First bytes of a reply.
const (
	succeeded byte = iota // and the bytes that were read
	failed                // and the error's text
	gave                  // and the outputs of a batch of several: other replies follow
)

var errMessage = errors.New("a message of another process is not understood: it runs another version")

// encoder encodes the commands for one rank.
type encoder struct {
	outputs bool // another rank than the first has the outputs
	message []byte
	numbers []int64 // of a step
}

// encode returns a message, valid until the next: the length of the command as JSON, that, and
// data.
func (e *encoder) encode(c *command, data []byte) []byte {
	text, err := json.Marshal(c)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	e.message = binary.AppendUvarint(e.message[:0], uint64(len(text)))
	e.message = append(append(e.message, text...), data...)
	return e.message
}

// decode decodes a message of rank 0, and returns the bytes after the command.
func (c *command) decode(message []byte) (data []byte, err error) {
	*c = command{}
	n, size := binary.Uvarint(message)
	if size <= 0 || n > uint64(len(message)-size) {
		return nil, errMessage
	}
	text := message[size:][:n]
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%w (%w)", errMessage, err)
	}
	return message[size+int(n):], nil
}

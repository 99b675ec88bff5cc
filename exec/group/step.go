package group

import (
	"encoding/binary"

	"github.com/krait-ml/krait/exec"
	"github.com/krait-ml/krait/graph"
)

// The message of a step is encoded by hand: encoding/gob takes 32 µs for a batch of 8 sequences
// with 64 KV pages each, and this 1.4 µs (BenchmarkMessage). It is a zero byte, with which no
// command begins, the number of numbers, the numbers as int64, and the data of the inputs that all
// ranks need, or of all where the outputs are of another rank than the first.

// lastStep is the message after the last batch of several.
var lastStep = []byte{0}

// encodeStep returns the message of a batch, valid until the next. numbers is memory that it
// reuses.
func (e *encoder) encodeStep(w *exec.Work) []byte {
	n := append(e.numbers[:0], int64(w.Replica), w.Tokens, w.Seqs, w.Rows, w.Cached, w.Pairs, w.Largest)
	for _, selected := range w.Outputs {
		n = append(n, 0)
		if selected {
			n[len(n)-1] = 1
		}
	}
	for _, end := range w.Ends {
		n = append(n, int64(end))
	}
	n = append(n, int64(len(w.BlockTables)))
	for _, pages := range w.BlockTables {
		n = append(n, int64(len(pages)))
		for _, page := range pages {
			n = append(n, int64(page))
		}
	}
	n = append(n, int64(len(w.Trials)))
	for _, x := range w.Trials {
		n = append(n, int64(x.Sequence), int64(x.Spare), int64(x.From))
	}
	n = append(n, int64(len(w.Wide)))
	for _, x := range w.Wide {
		n = append(n, int64(x.Start), int64(x.Len))
	}
	for i := range w.Inputs {
		if w.Runs(w.Inputs[i].For, e.outputs) {
			n = append(n, int64(len(w.Inputs[i].Data)))
		}
	}
	e.numbers = n
	b := binary.LittleEndian.AppendUint32(append(e.message[:0], 0), uint32(len(n)))
	for _, x := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	for i := range w.Inputs {
		if w.Runs(w.Inputs[i].For, e.outputs) {
			b = append(b, w.Inputs[i].Data...)
		}
	}
	e.message = b
	return b
}

// numbers reads the numbers of a step. It is bad once there were too few.
type numbers struct {
	b   []byte
	bad bool
}

func (n *numbers) next() int64 {
	if len(n.b) < 8 {
		n.bad = true
		return 0
	}
	x := binary.LittleEndian.Uint64(n.b)
	n.b = n.b[8:]
	return int64(x)
}

// count is a number of numbers that follow.
func (n *numbers) count() int {
	if x := n.next(); x >= 0 && x <= int64(len(n.b)/8) {
		return int(x)
	}
	n.bad = true
	return 0
}

// decodeStep decodes the message of a step, and reuses memory of the last. Data of inputs stays in
// the message. outputs is whether another rank than the first has the outputs.
func decodeStep(message []byte, w *exec.Work, outputs bool) error {
	if len(message) < 5 || uint64(binary.LittleEndian.Uint32(message[1:])) > uint64(len(message)-5)/8 {
		return errMessage
	}
	end := 5 + 8*int(binary.LittleEndian.Uint32(message[1:]))
	n, data := &numbers{b: message[5:end]}, message[end:]
	w.Replica = int(n.next())
	w.Sizes = graph.Sizes{Tokens: n.next(), Seqs: n.next(), Rows: n.next(), Cached: n.next(), Pairs: n.next(), Largest: n.next()}
	for i := range w.Outputs {
		w.Outputs[i] = n.next() != 0
	}
	if w.Ends = w.Ends[:0]; w.Seqs < 0 || w.Seqs > int64(len(n.b)/8) {
		return errMessage
	}
	for range w.Seqs {
		w.Ends = append(w.Ends, int(n.next()))
	}
	tables := w.BlockTables[:cap(w.BlockTables)]
	w.BlockTables = w.BlockTables[:0]
	for i := range n.count() {
		var pages []int32
		if i < len(tables) {
			pages = tables[i][:0]
		}
		for range n.count() {
			pages = append(pages, int32(n.next()))
		}
		w.BlockTables = append(w.BlockTables, pages)
	}
	w.Trials = w.Trials[:0]
	for range n.count() {
		w.Trials = append(w.Trials, exec.Trial{Sequence: int(n.next()), Spare: int(n.next()), From: int(n.next())})
	}
	w.Wide = w.Wide[:0]
	for range n.count() {
		w.Wide = append(w.Wide, graph.Run{Start: int(n.next()), Len: int(n.next())})
	}
	for i := range w.Inputs {
		if !w.Runs(w.Inputs[i].For, outputs) {
			continue
		}
		size := n.next()
		if size < 0 || size > int64(len(data)) {
			return errMessage
		}
		w.Inputs[i].Data, data = data[:size:size], data[size:]
	}
	if n.bad || len(n.b) > 0 || len(data) > 0 {
		return errMessage
	}
	return nil
}

package cuda

import (
	"fmt"

	"github.com/krait-ml/krait/graph"
)

// MaxPeers is the most ranks that PeerSum takes.
const MaxPeers = 16

// PeerSum returns the launches that add tensors of several ranks in memory that the device
// reaches, rank 0 first, and write the sum to each of the results. Operands have
// one shape and stride, and so have results, which may be the operands. With wide
// they are added in f32; otherwise every sum is rounded to their format, as if it
// had travelled. Operands in blocks are added in f32, to one result in f32.
func PeerSum(results, args []Tensor, wide bool) ([]Launch, error) {
	if len(args) == 0 || len(args) > MaxPeers || len(results) > MaxPeers {
		return nil, fmt.Errorf("the sum of %d ranks for %d; the kernel takes up to %d", len(args), len(results), MaxPeers)
	}
	if len(results) == 0 {
		return nil, nil
	}
	var peers Struct
	var all []*Tensor
	for _, list := range [][]Tensor{args, results} {
		for i := range MaxPeers {
			ptr := uint64(0)
			if i < len(list) {
				ptr, all = list[i].Ptr, append(all, &list[i])
				if list[i].Stride != list[0].Stride || list[i].DType != list[0].DType {
					panic("BUG: ranks sum tensors that lie in different ways")
				}
			}
			peers = append(peers, ptr)
		}
	}
	peers = append(peers, len(args), len(results))
	x, y := &args[0], &results[0]
	if from, ok := x.DType.Codec(); ok {
		if len(results) > 1 || y.DType != graph.F32 || !wide {
			panic("BUG: what travels in blocks is added in f32, for one rank")
		}
		return sumBlocks(y, x, from, peers)
	}
	if x.DType != y.DType {
		panic("BUG: a sum is in another format than its terms")
	}
	rows, cols, vec := shape(all...)
	var c Call
	grid, block := elementGrid(rows, cols)
	c.launch("peers", "peer_sum_"+format(x.DType), grid, block, 0, y.stride(), x.stride(), cols, vec, wide, peers)
	return c.launches, c.err
}

func sumBlocks(y, x *Tensor, from graph.Codec, peers Struct) ([]Launch, error) {
	var c Call
	grid := [3]int{y.Rows(), ceilDiv(y.Cols, elementThreads), 1}
	c.launch("codec", "codec_sum", grid, [3]int{elementThreads}, 0, y.Ptr, y.stride(), x.stride(), y.Cols, from.Block, int(from.Kind), peers)
	return c.launches, c.err
}

// Raw returns t as a copy moves it, without decoding: rows in blocks are their bytes, in pairs, as
// f16.
func Raw(t Tensor) Tensor {
	if t.DType.InBlocks() {
		t.Cols, t.Stride, t.DType = t.DType.RowBytes(t.Cols)/2, t.Stride/2, graph.F16
	}
	return t
}

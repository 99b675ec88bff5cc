package cuda

import "fmt"

// MaxPeers is how many ranks PeerSum takes.
const MaxPeers = 16

// PeerSum adds tensors of several ranks that lie in memory which the device
// reaches, rank 0 first, and writes the sum to each of the results. Operands have
// one shape and stride, and so have results, which may be the operands. With wide
// they are added in f32; otherwise every sum is rounded to their format, as if it
// had travelled.
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
				if list[i].Stride != list[0].Stride || list[i].DType != args[0].DType {
					panic("BUG: ranks sum tensors that lie in different ways")
				}
			}
			peers = append(peers, ptr)
		}
	}
	peers = append(peers, len(args), len(results))
	x, y := &args[0], &results[0]
	rows, cols, vec := shape(all...)
	var c Call
	grid, block := elementGrid(rows, cols)
	c.launch("peers", "peer_sum_"+format(x.DType), grid, block, 0, y.stride(), x.stride(), cols, vec, wide, peers)
	return c.launches, c.err
}

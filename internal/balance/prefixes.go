package balance

import "hash/maphash"

// BlockBytes is the bytes of a prompt per hash.
const BlockBytes = 64

// mostBlocks is the blocks of a generation; a machine has two.
const mostBlocks = 1 << 16

// Blocks returns a hash of each prefix of a prompt that ends with a whole block. The seed is
// random per router, so that no client can construct collisions.
func Blocks(seed maphash.Seed, tenant, prompt []byte) []uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, len(tenant))
	h.Write(tenant)
	list := make([]uint64, 0, len(prompt)/BlockBytes)
	for ; len(prompt) >= BlockBytes; prompt = prompt[BlockBytes:] {
		h.Write(prompt[:BlockBytes])
		list = append(list, h.Sum64())
	}
	return list
}

// Prefixes remembers the prefixes sent to a machine, in two generations of up to mostBlocks blocks.
type Prefixes struct {
	now, before map[uint64]struct{}
}

// Add remembers a prompt.
func (s *Prefixes) Add(list []uint64) {
	if len(s.now)+len(list) > mostBlocks || s.now == nil {
		s.before, s.now = s.now, map[uint64]struct{}{}
	}
	for _, b := range list {
		s.now[b] = struct{}{}
	}
}

// Match returns the bytes of the longest remembered prefix of a prompt.
func (s *Prefixes) Match(list []uint64) int {
	for n, b := range list {
		_, is := s.now[b]
		if _, was := s.before[b]; !is && !was {
			return n * BlockBytes
		}
	}
	return len(list) * BlockBytes
}

package route

import "hash/maphash"

const (
	blockBytes = 64      // bytes of a prompt per hash
	mostBlocks = 1 << 16 // blocks of a generation; a machine has two
)

// blocks returns a hash of each prefix of a prompt that ends with a whole block. The seed is
// random per process, so that no client can construct collisions.
func blocks(seed maphash.Seed, tenant, prompt []byte) []uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, len(tenant))
	h.Write(tenant)
	list := make([]uint64, 0, len(prompt)/blockBytes)
	for ; len(prompt) >= blockBytes; prompt = prompt[blockBytes:] {
		h.Write(prompt[:blockBytes])
		list = append(list, h.Sum64())
	}
	return list
}

// prefixes remembers the prefixes sent to a machine, in two generations of up to mostBlocks blocks.
type prefixes struct {
	now, before map[uint64]struct{}
}

// add remembers a prompt.
func (s *prefixes) add(list []uint64) {
	if len(s.now)+len(list) > mostBlocks || s.now == nil {
		s.before, s.now = s.now, map[uint64]struct{}{}
	}
	for _, b := range list {
		s.now[b] = struct{}{}
	}
}

// match returns the bytes of the longest remembered prefix of a prompt.
func (s *prefixes) match(list []uint64) int {
	for n, b := range list {
		_, is := s.now[b]
		if _, was := s.before[b]; !is && !was {
			return n * blockBytes
		}
	}
	return len(list) * blockBytes
}

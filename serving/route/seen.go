package route

import "hash/maphash"

const (
	blockBytes = 64      // of a prompt that are remembered as one
	mostSeen   = 1 << 16 // blocks of a machine, twice: what was sent to it lately
)

// blocks are the beginnings of a prompt that end with a whole block, each as a number. The
// seed is this process's: nobody can make prompts that are taken for each other.
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

// seen remembers which beginnings a machine was sent: those of the last mostSeen blocks, and
// up to as many before.
type seen struct {
	now, before map[uint64]struct{}
}

// add remembers a prompt.
func (s *seen) add(list []uint64) {
	if len(s.now)+len(list) > mostSeen || s.now == nil {
		s.before, s.now = s.now, map[uint64]struct{}{}
	}
	for _, b := range list {
		s.now[b] = struct{}{}
	}
}

// match is how many bytes of a prompt's beginning are remembered.
func (s *seen) match(list []uint64) int {
	for n, b := range list {
		_, is := s.now[b]
		if _, was := s.before[b]; !is && !was {
			return n * blockBytes
		}
	}
	return len(list) * blockBytes
}

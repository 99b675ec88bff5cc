package cpu

import "github.com/krait-ml/krait/lowering"

// grow moves the caches to larger memory.
func (r *rank) grow(room int) {
	for i, b := range r.s.Buffers {
		if b.Space != lowering.Cache {
			continue
		}
		old, size := r.memory[i], int(b.Bytes)
		r.memory[i] = roomy(int64(size * r.slots * room))
		for slot := range r.slots {
			copy(r.memory[i][slot*room*size:], old[slot*r.context*size:(slot+1)*r.context*size])
		}
	}
	r.context, r.bound = room, false
}

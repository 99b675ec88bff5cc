package cpu

// Work is counted in operations and words read. A worker does from one to some tens of these in a
// nanosecond.
const (
	parallelWork = 1 << 15 // is worth other workers
	chunkWork    = 1 << 14 // is worth a chunk of its own
	maxRounds    = 4
)

// cut divides units into chunks, in rounds of one chunk per worker. Each round takes half of the
// rest, the last all of it: a worker that is late for the first makes the others wait for a small
// chunk at most.
type cut struct {
	units, workers, rounds int
}

// cutOf cuts units with the given work in all.
func cutOf(units, workers int, work int64) cut {
	if units == 0 {
		return cut{}
	}
	c := cut{units, min(units, workers), 1}
	if work < parallelWork {
		c.workers = 1
	}
	if c.workers == 1 {
		return c
	}
	for c.rounds < maxRounds && c.units>>c.rounds >= c.workers && work>>c.rounds >= int64(c.workers)*chunkWork {
		c.rounds++
	}
	return c
}

func (c *cut) chunks() int { return c.workers * c.rounds }

// begin is the first unit of a chunk: those of a round are of the same size, give or take one.
func (c *cut) begin(chunk int) int {
	round, i := chunk/c.workers, chunk%c.workers
	if round == c.rounds {
		return c.units
	}
	left := c.units >> round
	next := left / 2
	if round == c.rounds-1 {
		next = 0
	}
	return c.units - left + i*(left-next)/c.workers
}

package exec

// CollectiveCount is what one collective of the schedule has done.
type CollectiveCount struct {
	Name  string // of its first result
	Kind  string // the operation: all_reduce, …
	Calls int
	// Elems and Bytes are the payload of all calls: each operand whole and once.
	Elems, Bytes int64
}

// Collectives lists the collectives in the order of the schedule with what they
// did, counted as they ran, since New or [Engine.ResetCounts].
func (e *Engine) Collectives() []CollectiveCount {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Collectives()
}

// Exchanges says in words how the collectives of its ranks travel, where the device has several ways; else it is empty.
func (e *Engine) Exchanges() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Exchanges()
}

// ResetCounts lets [Engine.Collectives] count from 0 again.
func (e *Engine) ResetCounts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.machine.ResetCounts()
}

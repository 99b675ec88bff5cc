// Package budget shares bytes of memory among senders of requests.
package budget

import "sync"

// Bytes is a number of bytes that senders share. A sender may hold as many as stay free: one alone
// half of them, two a third each, so that there are some for the next (dynamic thresholds:
// Choudhury and Hahne, "Dynamic queue length thresholds in a shared memory ATM switch", 1996).
type Bytes struct {
	most int64

	mu   sync.Mutex
	held int64
	by   map[string]int64 // sender; none has 0
}

// New makes a budget of so many bytes.
func New(most int64) *Bytes { return &Bytes{most: most, by: map[string]int64{}} }

// Take gives a sender n bytes, or reports that its share has no room for them.
func (b *Bytes) Take(sender string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[sender]+n > b.most-b.held-n {
		return false
	}
	b.add(sender, n)
	return true
}

// Add changes what a sender holds by n bytes that are there already, or that it gives back.
func (b *Bytes) Add(sender string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(sender, n)
}

func (b *Bytes) add(sender string, n int64) {
	b.held += n
	if b.by[sender] += n; b.by[sender] == 0 {
		delete(b.by, sender)
	}
}

// Held returns the bytes that all senders hold.
func (b *Bytes) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

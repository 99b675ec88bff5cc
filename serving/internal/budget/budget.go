// Package budget shares a bound among senders of requests.
package budget

import "sync"

// Bytes is a number of bytes that senders share. A sender may hold as many as remain free: one
// alone half of them, two a third each, which leaves some for the next (dynamic thresholds:
// Choudhury and Hahne, "Dynamic queue length thresholds in a shared memory ATM switch", 1996).
type Bytes struct {
	most int64

	mu   sync.Mutex
	held int64
	by   map[string]int64 // by sender; entries are never 0
}

// New returns a budget of most bytes.
func New(most int64) *Bytes { return &Bytes{most: most, by: map[string]int64{}} }

// Take takes n bytes for a sender, and reports whether they fit its share.
func (b *Bytes) Take(sender string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[sender]+n > b.most-b.held-n {
		return false
	}
	b.add(sender, n)
	return true
}

// Add changes a sender's bytes by n, without a check.
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

package operand

import "github.com/krait-ml/krait/lowering"

// pageAlign is where rows of a cache begin in a page.
const pageAlign = 64

// Page is where in a page of so many tokens the rows of each buffer that is a cache
// begin, and how long the page is, in bytes.
func Page(s *lowering.Schedule, tokens int) (at []int, bytes int64) {
	at = make([]int, len(s.Buffers))
	for i := range s.Buffers {
		if b := &s.Buffers[i]; b.Space == lowering.Cache {
			at[i] = int(bytes)
			bytes += (b.Bytes*int64(tokens) + pageAlign - 1) / pageAlign * pageAlign
		}
	}
	return at, bytes
}

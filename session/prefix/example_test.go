package prefix_test

import (
	"fmt"

	"github.com/krait-ml/krait/session/prefix"
)

// A tree knows which beginnings of prompts are kept, in bytes that it may hold.
func ExampleTree() {
	model := prefix.Model{FLOPsPerToken: 1e9, CacheBytes: 100, StateBytes: 1000}
	tree := prefix.NewTree(model, 1<<20, 0)
	text := func(n int) prefix.Tokens { // 0, 1, …, n-1
		var b prefix.Builder
		b.Append(0, n)
		return b.Tokens()
	}
	tree.Insert(text(40), true, 1) // with a state after the 40th token
	hit, _ := tree.Lookup(text(50), 2)
	fmt.Println(hit, "of 50 tokens need not be read again;", tree.Bytes(), "bytes held")
	// Output:
	// 40 of 50 tokens need not be read again; 5000 bytes held
}

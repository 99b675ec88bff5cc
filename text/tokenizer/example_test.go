package tokenizer_test

import (
	"fmt"
	"log"

	"github.com/krait-ml/krait/text/tokenizer"
)

// A tokenizer.json gives the ids that Hugging Face's library gives.
func Example() {
	const file = `{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
		"normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
		"model": {"type": "BPE", "vocab": {"s": 0, "n": 1, "a": 2, "sn": 3, "sna": 4}, "merges": ["s n", "sn a"]}}`
	t, err := tokenizer.Parse([]byte(file))
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("snasa", true)
	fmt.Println(ids, err)
	// Output:
	// [4 0 2] <nil>
}

// Without a file, bytes are tokens.
func ExampleBytes() {
	var t tokenizer.Tokenizer = tokenizer.Bytes{}
	ids, err := t.Encode("né", true)
	fmt.Println(ids, err)
	s := t.NewStream(true) // text as it becomes certain: half a character is kept back
	for _, id := range ids {
		fmt.Printf("%q ", s.Push(id))
	}
	fmt.Printf("%q\n", s.Flush())
	// Output:
	// [110 195 169] <nil>
	// "n" "" "é" ""
}

package openai

import (
	"testing"

	"github.com/krait-ml/krait/text/tokenizer"
)

// TestFollowing: tokens that are part of a character have its bytes.
func TestFollowing(t *testing.T) {
	for name, file := range map[string]string{
		"byte level": `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġb": 2, "æĹ": 3, "¥": 4, "æĹ¥": 5, "aæ": 6}, "merges": []},
			"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}}`,
		"byte tokens": `{"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0, "b": 1, "▁b": 2, "<0xE6>": 3, "<0xA5>": 4, "日": 5, "�": 6}, "merges": []},
			"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}}`,
	} {
		tok, err := tokenizer.Parse([]byte(file))
		if err != nil {
			t.Fatal(name, err)
		}
		follow, err := following(tok)
		if err != nil {
			t.Fatal(name, err)
		}
		want := []string{"a", "b", " b", "\xe6\x97", "\xa5", "日", "a\xe6"}
		if name == "byte tokens" {
			want[3], want[6] = "\xe6", "" // U+FFFD may be a token, or a part
		}
		for id, bytes := range want {
			if got := string(follow(id)); got != bytes {
				t.Errorf("%s: token %d is %q; want %q", name, id, got, bytes)
			}
		}
	}
}

package cli

import (
	"bufio"
	"bytes"
	"os"
	"testing"
)

// TestChatFormat reads a conversation that /save wrote when version 1 was new, and refuses the next
// version.
func TestChatFormat(t *testing.T) {
	text, err := os.ReadFile("../testdata/formats/v1/chat.krait")
	if err != nil {
		t.Fatal(err)
	}
	read := func(text []byte) (*chatFile, error) { return readTalk(bufio.NewReader(bytes.NewReader(text))) }
	s, err := read(text)
	if err != nil || len(s.Messages) != 2 || s.Messages[1].Content != "Moses." || len(s.Turns) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err = read(bytes.Replace(text, []byte("chat 1"), []byte("chat 2"), 1))
	if want := "saved chat of version 2; this krait reads versions up to 1: use a newer krait"; err == nil || err.Error() != want {
		t.Errorf("a newer version: %v", err)
	}
	if _, err = read(bytes.Replace(text, []byte("chat 1"), []byte("chat 0"), 1)); err == nil {
		t.Error("chat 0 is read")
	}
}

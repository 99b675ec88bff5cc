package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func message(t *testing.T, k Kind, parts ...[]byte) []byte {
	var b bytes.Buffer
	if err := NewWriter(&b).Write(k, parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	big := bytes.Repeat([]byte("krait"), 500_000)
	for _, parts := range [][][]byte{nil, {{}}, {[]byte("a")}, {[]byte("ab"), nil, []byte("c")}, {big}} {
		if err := w.Write(7, parts...); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(&b, len(big))
	for _, want := range []string{"", "", "a", "abc", string(big)} {
		h, err := r.Next()
		if err != nil || h.Kind != 7 || h.Bytes != len(want) {
			t.Fatal(h, err)
		}
		if got, err := r.Payload(); err != nil || string(got) != want {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

// TestEveryBit: a message of which one bit is another is an error, wherever that is.
func TestEveryBit(t *testing.T) {
	good := message(t, 3, []byte("the state"))
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		r := NewReader(bytes.NewReader(bad), 100)
		_, err := r.Next()
		if err == nil {
			_, err = r.Payload()
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

// TestEveryCut: a message that ends early is an error, and no io.EOF but before it begins.
func TestEveryCut(t *testing.T) {
	good := message(t, 3, []byte("the state"))
	for n := range good {
		r := NewReader(bytes.NewReader(good[:n]), 100)
		_, err := r.Next()
		if err == nil {
			_, err = r.Payload()
		}
		if (err == io.EOF) != (n == 0) || err == nil {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

func TestBounds(t *testing.T) {
	r := NewReader(bytes.NewReader(message(t, 1, make([]byte, 101))), 100)
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "101 bytes; at most 100") {
		t.Error(err)
	}
	r = NewReader(bytes.NewReader(message(t, 1, []byte("abc"))), 100)
	r.Next()
	if err := r.Fill(make([]byte, 4)); !errors.Is(err, ErrCorrupt) {
		t.Error("more than there is:", err)
	}
	if err := r.End(); !errors.Is(err, ErrCorrupt) {
		t.Error("less than there is:", err)
	}
}

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	NewWriter(&b).Write(1, []byte("hello"))
	f.Add(b.Bytes())
	f.Add(append(b.Bytes(), b.Bytes()...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data), 1<<20)
		var again bytes.Buffer
		w := NewWriter(&again)
		for {
			h, err := r.Next()
			if err != nil {
				break
			}
			p, err := r.Payload()
			if err != nil {
				break
			}
			if len(p) != h.Bytes {
				t.Fatal(len(p), h)
			}
			w.Write(h.Kind, p)
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatal("messages are read that were not sent")
		}
	})
}

// Package saved writes what engines keep of sequences, and reads it where it may have been
// damaged, or be of another model.
//
// What is written begins with a magic number, the length of a header, the header as JSON,
// and its CRC-32C. Token ids follow, states, and rows of caches, part by part, and the
// SHA-256 of all before it. Where a header names codecs, states and rows are in these, and
// the magic number is another, so that who knows of none does not take them for what they are not.
package saved

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	"github.com/krait-ml/krait/exec"
)

// Origin is where states come from. They go on where Model and Layout are the same; the
// rest says to people what these stand for.
type Origin struct {
	Model  string `json:"model"`  // a fingerprint of graph and weights
	Name   string `json:"name"`   // of the model
	Layout string `json:"layout"` // a fingerprint of what the ranks hold of states, and in which formats
	Ranks  string `json:"ranks"`  // how many, and by which strategy
	States string `json:"states"` // formats
}

// Kept is what is kept of a sequence.
type Kept struct {
	Tokens int              // of the sequence
	Codecs string           // that states and rows are in, as [exec.Packing] names them; empty: as ranks hold them
	Salt   string           // of whose prefix cache it is a part; empty: anybody's
	IDs    []int32          // of these, or nothing
	States *exec.HostStates // after them; nil: there are none
	Rows   []*exec.HostRows // of caches, of one stretch of the tokens each, in order
}

// MostTokens is the most of a sequence.
const MostTokens = 1 << 24

const (
	magic      = "krait-1\n"
	inCodecs   = "krait-2\n"
	salted     = "krait-3\n" // which those that know of no salt must not take for anybody's
	mostHeader = 1 << 24
)

// header says what follows.
type header struct {
	Origin Origin  `json:"origin"`
	Codecs string  `json:"codecs,omitempty"`
	Salt   []byte  `json:"salt,omitempty"`
	Tokens int     `json:"tokens"`
	IDs    int     `json:"ids"`
	States []int64 `json:"states"` // bytes of each part; null: there are none
	Rows   []rows  `json:"rows"`
}

// rows are a stretch of tokens, with the bytes of each part.
type rows struct {
	From  int     `json:"from"`
	To    int     `json:"to"`
	Parts []int64 `json:"parts"`
}

// Write writes what is kept.
func Write(w io.Writer, o Origin, k *Kept) error {
	h := header{Origin: o, Codecs: k.Codecs, Salt: []byte(k.Salt), Tokens: k.Tokens, IDs: len(k.IDs)}
	if k.States != nil {
		h.States = append([]int64{}, sizes(k.States.Data)...)
	}
	for _, r := range k.Rows {
		h.Rows = append(h.Rows, rows{r.From, r.To, sizes(r.Data)})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	parts := [][]byte{headOf(h.magic(), text), idsOf(k.IDs)}
	if k.States != nil {
		parts = append(parts, k.States.Data...)
	}
	for _, r := range k.Rows {
		parts = append(parts, r.Data...)
	}
	for _, p := range parts {
		if _, err := out.Write(p); err != nil {
			return err
		}
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// headOf is all up to the end of the header's checksum.
func headOf(magic string, text []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// magic is what a file with such a header begins with.
func (h *header) magic() string {
	switch {
	case len(h.Salt) > 0:
		return salted
	case h.Codecs != "":
		return inCodecs
	}
	return magic
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func idsOf(ids []int32) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, ids) // memory takes it
	return b.Bytes()
}

func sizes(data [][]byte) []int64 {
	list := make([]int64, len(data))
	for i, d := range data {
		list[i] = int64(len(d))
	}
	return list
}

// Foreign is the error of what comes from elsewhere.
type Foreign struct{ From, Here Origin }

func (e *Foreign) Error() string {
	if e.From.Model != e.Here.Model {
		return fmt.Sprintf("it is of another model: of %s with fingerprint %.12s, and this is %s with %.12s", e.From.Name, e.From.Model, e.Here.Name, e.Here.Model)
	}
	return fmt.Sprintf("it lies otherwise over ranks: %s, states in %s, and here %s, states in %s; open the model as it was then", e.From.Ranks, e.From.States, e.Here.Ranks, e.Here.States)
}

// errDamaged is the error of what was not written so.
var errDamaged = errors.New("it is damaged: what is read is not what was written")

// Read reads what is kept. The error is a [*Foreign] where it does not go on here, and says
// so where it is damaged, or ends too early. It reads no byte more than was written.
func Read(r io.Reader, here Origin) (*Kept, error) {
	in := &reader{r: r, sum: sha256.New()}
	h, err := in.header()
	if err != nil {
		return nil, err
	}
	if h.Origin.Model != here.Model || h.Origin.Layout != here.Layout {
		return nil, &Foreign{h.Origin, here}
	}
	k := &Kept{Tokens: h.Tokens, Codecs: h.Codecs, Salt: string(h.Salt), IDs: in.ids(h.IDs)}
	if h.States != nil {
		k.States = &exec.HostStates{Tokens: h.Tokens, Data: in.parts(h.States)}
	}
	for _, x := range h.Rows {
		k.Rows = append(k.Rows, &exec.HostRows{From: x.From, To: x.To, Data: in.parts(x.Parts)})
	}
	want := in.sum.Sum(nil)
	if got := in.read(sha256.Size); in.err == nil && !bytes.Equal(got, want) {
		in.err = errDamaged
	}
	if in.err != nil {
		return nil, in.err
	}
	return k, nil
}

// reader reads and adds up; after an error it reads nothing.
type reader struct {
	r   io.Reader
	sum hash.Hash
	err error
}

// header reads the header, and checks all that it says.
func (r *reader) header() (*header, error) {
	first := r.read(int64(len(magic)) + 4)
	begins := ""
	if r.err == nil {
		begins = string(first[:len(magic)])
	}
	if r.err == nil && begins != magic && begins != inCodecs && begins != salted {
		return nil, errors.New("it is nothing that Krait has saved, or was saved by a later one")
	}
	n := 0
	if r.err == nil {
		n = int(binary.LittleEndian.Uint32(first[len(magic):]))
	}
	if n > mostHeader {
		return nil, errDamaged
	}
	text := r.read(int64(n))
	sum := r.read(4)
	if r.err != nil {
		return nil, r.err
	}
	if !bytes.Equal(headOf(begins, text)[len(first)+n:], sum) {
		return nil, errDamaged
	}
	h := &header{}
	if err := json.Unmarshal(text, h); err != nil || h.magic() != begins {
		return nil, errDamaged
	}
	return h, h.check()
}

// check is an error where a header says what cannot be. Sizes are the engine's to check.
func (h *header) check() error {
	if h.Tokens < 0 || h.Tokens > MostTokens || h.IDs != 0 && h.IDs != h.Tokens {
		return fmt.Errorf("it says that it has %d ids of a sequence of %d tokens; at most %d are possible", h.IDs, h.Tokens, MostTokens)
	}
	at := -1
	parts := slices.Clone(h.States)
	for _, x := range h.Rows {
		if x.From < 0 || x.To < x.From || x.To > h.Tokens || at >= 0 && x.From != at {
			return fmt.Errorf("it says that it has rows of tokens %d to %d after %d, of a sequence of %d", x.From, x.To, at, h.Tokens)
		}
		at = x.To
		parts = append(parts, x.Parts...)
	}
	if len(parts) > 0 && slices.Min(parts) < 0 {
		return errors.New("it says that a part of it has less than no bytes")
	}
	return nil
}

func (r *reader) ids(n int) []int32 {
	b := r.read(4 * int64(n))
	if r.err != nil || n == 0 {
		return nil
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return ids
}

func (r *reader) parts(sizes []int64) [][]byte {
	data := make([][]byte, len(sizes))
	for i, n := range sizes {
		data[i] = r.read(n)
	}
	return data
}

// read reads n bytes, for which it asks little memory at first: there may be fewer.
func (r *reader) read(n int64) []byte {
	var out []byte
	for got := 0; r.err == nil && int64(got) < n; {
		more := int(min(n-int64(got), int64(max(got, 1<<16))))
		out = append(slices.Grow(out, more), make([]byte, more)...)
		k, err := io.ReadFull(r.r, out[got:])
		if got += k; err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errors.New("it ends too early: it was cut")
		}
		r.err = err
	}
	r.sum.Write(out)
	return out
}

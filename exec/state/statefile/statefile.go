// Package statefile writes an [state.Export] to a file, and reads it where it may be damaged or of
// another model.
//
// A file begins with a magic number, the length of a header, the header as JSON, and its CRC-32C.
// Token ids follow, recurrent states, and rows of KV caches, part by part, and the SHA-256 of all
// before it. The magic number ends in the version: 1, or 2 for compressed states, or 3 for an entry
// with a salt, so that programs that do not know these reject the file.
package statefile

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

	"github.com/krait-ml/krait/exec/state"
	"github.com/krait-ml/krait/internal/versions"
)

// Origin identifies the engine that wrote a file. An engine with the same Model and Layout can
// resume from it; the other fields describe these to people.
type Origin struct {
	Model  string `json:"model"`  // fingerprint of graph and weights
	Name   string `json:"name"`   // of the model
	Layout string `json:"layout"` // fingerprint of the ranks' shards of states, and their formats
	Ranks  string `json:"ranks"`  // number and sharding strategy
	States string `json:"states"` // formats
}

// MaxTokens is the most tokens of a sequence.
const MaxTokens = 1 << 24

const (
	magic      = "krait-1\n"
	magicCodec = "krait-2\n"
	magicSalt  = "krait-3\n"
	maxHeader  = 1 << 24
)

// header describes the rest of the file.
type header struct {
	Origin Origin  `json:"origin"`
	Codecs string  `json:"codecs,omitempty"`
	Salt   []byte  `json:"salt,omitempty"`
	Tokens int     `json:"tokens"`
	IDs    int     `json:"ids"`
	Exact  bool    `json:"exact,omitempty"`
	States []int64 `json:"states"` // bytes of each part; null: no states
	Rows   []kv    `json:"rows"`
}

// kv is the KV cache of a range of tokens, with the bytes of each part.
type kv struct {
	From  int     `json:"from"`
	To    int     `json:"to"`
	Parts []int64 `json:"parts"`
}

// Write writes an export.
func Write(w io.Writer, o Origin, x *state.Export) error {
	h := header{Origin: o, Codecs: x.Codecs, Salt: []byte(x.Salt), Tokens: x.Tokens, IDs: len(x.IDs), Exact: x.Exact}
	if x.State != nil {
		h.States = append([]int64{}, sizes(x.State.Data)...)
	}
	for _, r := range x.KV {
		h.Rows = append(h.Rows, kv{r.From, r.To, sizes(r.Data)})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	parts := [][]byte{headOf(h.magic(), text), idsOf(x.IDs)}
	if x.State != nil {
		parts = append(parts, x.State.Data...)
	}
	for _, r := range x.KV {
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

// headOf is the file up to the end of the header's checksum.
func headOf(magic string, text []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// magic is the magic number of a file with this header.
func (h *header) magic() string {
	switch {
	case len(h.Salt) > 0:
		return magicSalt
	case h.Codecs != "":
		return magicCodec
	}
	return magic
}

// known returns an error unless a magic number is of a version that is read.
func known(begins string) error {
	version := 0
	if _, err := fmt.Sscanf(begins, "krait-%d\n", &version); err != nil || version < 1 {
		return errors.New("it is not a state that Krait saved")
	}
	return versions.State.Accept(version)
}

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

// OriginError is the error of a file that another model or layout wrote.
type OriginError struct{ From, Here Origin }

func (e *OriginError) Error() string {
	if e.From.Model != e.Here.Model {
		return fmt.Sprintf("it is of another model: of %s with fingerprint %.12s, and this is %s with %.12s", e.From.Name, e.From.Model, e.Here.Name, e.Here.Model)
	}
	return fmt.Sprintf("its states are sharded or stored differently: %s, states in %s, and here %s, states in %s; open the model as it was then", e.From.Ranks, e.From.States, e.Here.Ranks, e.Here.States)
}

// errDamaged is the error of a file whose checksums differ.
var errDamaged = errors.New("it is damaged: what is read is not what was written")

// Read reads an export for the engine with an origin. The error is an [*OriginError] where the file
// is of another model or layout; damaged and truncated files are errors, too. It reads no byte more
// than was written.
func Read(r io.Reader, here Origin) (*state.Export, error) {
	in := &reader{r: r, sum: sha256.New()}
	h, err := in.header()
	if err != nil {
		return nil, err
	}
	if h.Origin.Model != here.Model || h.Origin.Layout != here.Layout {
		return nil, &OriginError{h.Origin, here}
	}
	x := &state.Export{Tokens: h.Tokens, Codecs: h.Codecs, Salt: string(h.Salt), IDs: in.ids(h.IDs), Exact: h.Exact}
	if h.States != nil {
		x.State = &state.HostState{Tokens: h.Tokens, Data: in.parts(h.States)}
	}
	for _, r := range h.Rows {
		x.KV = append(x.KV, &state.HostKV{From: r.From, To: r.To, Data: in.parts(r.Parts)})
	}
	want := in.sum.Sum(nil)
	if got := in.read(sha256.Size); in.err == nil && !bytes.Equal(got, want) {
		in.err = errDamaged
	}
	if in.err != nil {
		return nil, in.err
	}
	return x, nil
}

// reader reads and hashes; after an error it reads nothing.
type reader struct {
	r   io.Reader
	sum hash.Hash
	err error
}

// header reads the header, and checks it.
func (r *reader) header() (*header, error) {
	first := r.read(int64(len(magic)) + 4)
	begins := ""
	if r.err == nil {
		begins = string(first[:len(magic)])
	}
	if r.err == nil {
		if err := known(begins); err != nil {
			return nil, err
		}
	}
	n := 0
	if r.err == nil {
		n = int(binary.LittleEndian.Uint32(first[len(magic):]))
	}
	if n > maxHeader {
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

// check checks a header. The engine checks the sizes of parts.
func (h *header) check() error {
	if h.Tokens < 0 || h.Tokens > MaxTokens || h.IDs != 0 && h.IDs != h.Tokens {
		return fmt.Errorf("its header has %d ids of a sequence of %d tokens; the limit is %d", h.IDs, h.Tokens, MaxTokens)
	}
	at := -1
	parts := slices.Clone(h.States)
	for _, x := range h.Rows {
		if x.From < 0 || x.To < x.From || x.To > h.Tokens || at >= 0 && x.From != at {
			return fmt.Errorf("its header has a KV cache of tokens %d to %d after %d, of a sequence of %d", x.From, x.To, at, h.Tokens)
		}
		at = x.To
		parts = append(parts, x.Parts...)
	}
	if len(parts) > 0 && slices.Min(parts) < 0 {
		return errors.New("its header has a part of a negative size")
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

// read reads n bytes. It allocates memory as they come, since a damaged header may ask for too
// many.
func (r *reader) read(n int64) []byte {
	var out []byte
	for got := 0; r.err == nil && int64(got) < n; {
		more := int(min(n-int64(got), int64(max(got, 1<<16))))
		out = append(slices.Grow(out, more), make([]byte, more)...)
		k, err := io.ReadFull(r.r, out[got:])
		if got += k; err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errors.New("it ends too early: it was truncated")
		}
		r.err = err
	}
	r.sum.Write(out)
	return out
}

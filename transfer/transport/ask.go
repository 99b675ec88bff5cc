package transport

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/krait-ml/krait/transfer/internal/wire"
)

// Kinds of messages on a connection for data. Package transfer has others.
const (
	kindAsk     wire.Kind = 0x40 + iota // a ticket and pieces
	kindData                            // the next bytes of the pieces
	kindRefused                         // why a request fails
	kindSent                            // checksums of the parts, which were sent by other means
)

const (
	mostPieces  = 4096      // of a request
	mostAsked   = 1 << 30   // bytes of a request
	dataBytes   = 512 << 10 // of a message of data, at most
	mostRefusal = 4096      // bytes of the reason
	pieceBytes  = 24
	mostAsk     = 16 + mostPieces*pieceBytes
)

// asked is a requested piece.
type asked struct {
	region      Region
	from, bytes int64
}

// appendAsk appends a request for pieces.
func appendAsk(to []byte, t Ticket, pieces []Piece) []byte {
	to = append(to, t[:]...)
	le := binary.LittleEndian
	for i := range pieces {
		p := &pieces[i]
		to = le.AppendUint64(to, uint64(p.Region))
		to = le.AppendUint64(to, uint64(p.From))
		to = le.AppendUint64(to, uint64(p.Bytes))
	}
	return to
}

// parseAsk parses a request, within bounds. It does not check that its regions exist.
func parseAsk(data []byte) (t Ticket, list []asked, err error) {
	n := len(data) - len(t)
	if n < 0 || n%pieceBytes != 0 || n/pieceBytes > mostPieces {
		return t, nil, fmt.Errorf("a request of %d bytes; it must be a ticket of %d, and up to %d pieces of %d each", len(data), len(t), mostPieces, pieceBytes)
	}
	copy(t[:], data)
	le, left := binary.LittleEndian, int64(mostAsked)
	for data = data[len(t):]; len(data) > 0; data = data[pieceBytes:] {
		p := asked{Region(le.Uint64(data)), int64(le.Uint64(data[8:])), int64(le.Uint64(data[16:]))}
		if p.from < 0 || p.bytes < 1 || p.bytes > left {
			return t, nil, fmt.Errorf("piece %d has %d bytes from %d on; at most %d are left of the request", len(list), p.bytes, p.from, left)
		}
		left -= p.bytes
		list = append(list, p)
	}
	return t, list, nil
}

// asks cuts pieces into lists for one request each, of at most that many bytes.
func asks(pieces []Piece, most int64) [][]Piece { return lists(pieces, most, mostPieces) }

// shares cuts pieces into up to n lists of about equal size, of at least about least bytes.
func shares(pieces []Piece, n int, least int64) [][]Piece {
	each := max(least, (Bytes(pieces)+int64(n)-1)/int64(n))
	return lists(pieces, each, math.MaxInt)
}

// lists cuts pieces into lists with a maximum of bytes and pieces.
func lists(pieces []Piece, bytes int64, most int) (out [][]Piece) {
	var now []Piece
	left := bytes
	for _, p := range pieces {
		for p.Bytes > 0 {
			head, rest := p.cut(left)
			now, p = append(now, head), rest
			if left -= head.Bytes; left == 0 || len(now) == most {
				out, now, left = append(out, now), nil, bytes
			}
		}
	}
	if len(now) > 0 {
		out = append(out, now)
	}
	return out
}

// cut splits a piece after at most that many bytes.
func (p Piece) cut(most int64) (head, rest Piece) {
	n := min(p.Bytes, most)
	head, rest = p, p
	head.Bytes = n
	rest.From, rest.At, rest.Bytes = p.From+n, p.At+n, p.Bytes-n
	return head, rest
}

package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/krait-ml/krait/transfer/internal/wire"
	"github.com/krait-ml/krait/transfer/transport"
)

// Kinds of messages. The first of each connection is a knock, or a [ping.Question].
const (
	kindHello    wire.Kind = 1 + iota // decode: its Meta
	kindWelcome                       // prefill: its Meta
	kindRefuse                        // prefill: why the connection is refused
	kindPrefill                       // decode: prefill this prompt
	kindProgress                      // prefill: tokens so far
	kindReady                         // prefill: the state is lent
	kindFailed                        // prefill: why a request failed
	kindRelease                       // decode: the state was read
	kindReleased                      // prefill: whether the lease lasted until now
	kindCancel                        // decode: cancel the request
	kindData                          // decode: a connection for data
	kindAccepted                      // prefill: requests may follow
	kindKnock                         // decode: credentials
	kindAdmitted                      // prefill: credentials are valid
	kindDrains                        // prefill: it takes no new prompts
)

// knock authenticates a client: by the token, or on a connection for data by its session.
type knock struct {
	Protocol int               `json:"protocol"`
	Token    string            `json:"token,omitempty"` // its SHA-256, in hexadecimal
	Session  transport.Session `json:"session"`         // zero on a connection for control
}

type hello struct {
	Meta Meta   `json:"meta"`
	By   string `json:"by"` // the transport for data
}

type welcome struct {
	Meta    Meta              `json:"meta"`
	Session transport.Session `json:"session"`
}

type refuse struct {
	Why     string `json:"why"`
	Differs bool   `json:"differs"` // a retry is useless
}

type prefill struct {
	Request uint64 `json:"request"`
	Tokens  []int  `json:"tokens"`
	Have    int    `json:"have"` // tokens whose KV pages are not needed
	// Salt of the prefix cache. It need not be valid UTF-8, which JSON strings would change.
	Salt []byte `json:"salt,omitempty"`
	// ID and Trace are the client's request and span, for the log and traces: [trace.Call].
	ID    string `json:"id,omitempty"`
	Trace string `json:"trace,omitempty"`
}

type progress struct {
	Request uint64 `json:"request"`
	Read    int    `json:"read"`
}

type ready struct {
	Request uint64           `json:"request"`
	Ticket  transport.Ticket `json:"ticket"`
	// Regions are the numbers of the lent memory, plus 1: for each rank that of the states, and
	// those of the KV pages from the one of token have on; 0: none.
	Regions [][]uint64 `json:"regions"`
	Lease   int64      `json:"lease_ms"`
}

type failed struct {
	Request uint64 `json:"request"`
	Why     string `json:"why"`
}

type release struct {
	Request uint64           `json:"request"`
	Ticket  transport.Ticket `json:"ticket"`
}

type released struct {
	Request uint64 `json:"request"`
	Lasted  bool   `json:"lasted"` // until now
}

type cancelled struct {
	Request uint64 `json:"request"`
}

type data struct {
	By      string `json:"by"`
	Address []byte `json:"address,omitempty"` // of a UCX receiver
}

const (
	mostKnock   = 4 << 10  // bytes of a message before authentication
	mostHello   = 1 << 20  // bytes of one after it
	mostControl = 64 << 20 // bytes of any other message, such as a prompt
	mostTokens  = 1 << 22  // of a prompt
	mostSalt    = 4 << 10  // bytes
)

// channel is a connection for control. Several goroutines may write to it; one reads.
type channel struct {
	net.Conn
	stall time.Duration
	mu    sync.Mutex
	w     *wire.Writer
	r     *wire.Reader
}

func newChannel(c net.Conn, stall time.Duration) *channel {
	return &channel{Conn: c, stall: stall, w: wire.NewWriter(c), r: wire.NewReader(c, mostKnock)}
}

// trust raises the limit of a message's bytes.
func (c *channel) trust(most int) { c.r = wire.NewReader(c.Conn, most) }

// say sends a message, or closes the connection.
func (c *channel) say(k wire.Kind, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return c.send(k, text)
}

// send sends a message with a payload, or closes the connection.
func (c *channel) send(k wire.Kind, payload ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SetWriteDeadline(time.Now().Add(c.stall))
	if err := c.w.Write(k, payload...); err != nil {
		c.Close()
		return err
	}
	return nil
}

// hear receives a message of any kind.
func (c *channel) hear() (wire.Kind, []byte, error) {
	h, err := c.r.Next()
	if err != nil {
		return 0, nil, err
	}
	text, err := c.r.Payload()
	return h.Kind, text, err
}

// hearFor is hear with a time limit.
func (c *channel) hearFor(limit time.Duration) (wire.Kind, []byte, error) {
	c.SetReadDeadline(time.Now().Add(limit))
	defer c.SetReadDeadline(time.Time{})
	return c.hear()
}

// parse parses a message, which is not trusted.
func parse[T any](text []byte) (m T, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&m); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("data follows it")
		}
	}
	if err != nil {
		err = fmt.Errorf("a message of %d bytes is not a %T: %w", len(text), m, err)
	}
	return m, err
}

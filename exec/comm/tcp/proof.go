package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// Two processes prove to each other that they know the same secret before they send anything else:
// both send a nonce, the caller sends the HMAC-SHA256 of both nonces, and so does the one called,
// under another label. A process without the secret learns only whether a guess was right, and a
// mere caller no sum to try guesses on.

// speaks is the version of the protocol.
const speaks = 2

// mostStranger is the longest line in bytes that is read before the other side has proved itself.
const mostStranger = 4 << 10

// challenge is what both sides say first.
type challenge struct {
	Krait int    // version of the protocol
	Nonce []byte `json:",omitempty"`
	Error string `json:",omitempty"`
}

// proof is what both sides say next.
type proof struct {
	Proof []byte `json:",omitempty"`
	Error string `json:",omitempty"`
}

const nonceBytes = 32

// Labels of the sums, so that neither can be sent back as the other.
const (
	ofCaller = "krait ranks 2, who calls"
	ofCalled = "krait ranks 2, who is called"
)

var (
	errStranger = errors.New("it does not speak as a rank of Krait does")
	errSecret   = errors.New("it has another token, or belongs to another run: give the same --comm-token-file to all")
)

func sum(key []byte, label string, caller, called []byte) []byte {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s\x00%x\x00%x", label, caller, called)
	return h.Sum(nil)
}

func newNonce() []byte {
	b := make([]byte, nonceBytes)
	rand.Read(b)
	return b
}

// check looks at the other side's challenge.
func (c *challenge) check() error {
	switch {
	case c.Krait == 0:
		return errStranger
	case c.Krait != speaks:
		return fmt.Errorf("it joins by version %d, this process by %d: they are different versions of Krait", c.Krait, speaks)
	case len(c.Nonce) != nonceBytes:
		return errStranger
	}
	return nil
}

// admit lets a caller prove that it knows the secret, and proves the same to it.
func admit(c *net.TCPConn, key []byte) error {
	var theirs challenge
	if err := hear(c, &theirs, mostStranger); err != nil {
		return err
	}
	if err := theirs.check(); err != nil {
		if !errors.Is(err, errStranger) { // an older or newer Krait reads this
			_ = say(c, challenge{Krait: speaks, Error: err.Error()})
		}
		return err
	}
	mine := challenge{Krait: speaks, Nonce: newNonce()}
	if err := say(c, mine); err != nil {
		return err
	}
	var p proof
	if err := hear(c, &p, mostStranger); err != nil {
		return err
	}
	if !hmac.Equal(p.Proof, sum(key, ofCaller, theirs.Nonce, mine.Nonce)) {
		_ = say(c, proof{Error: errSecret.Error()})
		return errSecret
	}
	return say(c, proof{Proof: sum(key, ofCalled, theirs.Nonce, mine.Nonce)})
}

// knock proves to the process called that this one knows the secret, and checks its proof.
func knock(c *net.TCPConn, key []byte) error {
	mine := challenge{Krait: speaks, Nonce: newNonce()}
	if err := say(c, mine); err != nil {
		return err
	}
	var theirs challenge
	if err := hear(c, &theirs, mostStranger); err != nil {
		return err
	}
	if theirs.Error != "" {
		return fmt.Errorf("it says %.200q", theirs.Error)
	}
	if err := theirs.check(); err != nil {
		return err
	}
	if err := say(c, proof{Proof: sum(key, ofCaller, mine.Nonce, theirs.Nonce)}); err != nil {
		return err
	}
	var p proof
	if err := hear(c, &p, mostStranger); err != nil {
		return err
	}
	if !hmac.Equal(p.Proof, sum(key, ofCalled, mine.Nonce, theirs.Nonce)) {
		return errSecret
	}
	return nil
}

// say writes a line.
func say(c *net.TCPConn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_, err = c.Write(append(text, '\n'))
	return err
}

// hear reads a line of at most most bytes, and no byte after it.
func hear(c *net.TCPConn, v any, most int) error {
	var text []byte
	var b [1]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return err
		}
		if b[0] == '\n' {
			break
		}
		if text = append(text, b[0]); len(text) > most {
			return errStranger
		}
	}
	if json.Unmarshal(text, v) != nil {
		return errStranger
	}
	return nil
}

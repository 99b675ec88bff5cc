package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parseModel reads the model, which must be a BPE.
func parseModel(raw json.RawMessage) (*bpe, error) {
	if raw == nil {
		return nil, errors.New(`there is no "model"`)
	}
	o := newObject("model", raw)
	// Older files do not name the type, and only a BPE has merges.
	kind := "BPE"
	o.optional("type", &kind)
	if kind != "BPE" {
		o.fail("has type %q, which is not supported (supported: BPE)", kind)
	}
	var dropout float64
	if o.optional("dropout", &dropout); dropout != 0 {
		o.fail("has dropout %v, which makes ids random and is not supported: set it to null", dropout)
	}
	m := &bpe{unk: noID}
	o.optional("continuing_subword_prefix", &m.prefix)
	o.optional("end_of_word_suffix", &m.suffix)
	o.optional("fuse_unk", &m.fuseUnk)
	o.optional("byte_fallback", &m.byteFallback)
	o.optional("ignore_merges", &m.ignoreMerges)
	o.required("vocab", &m.vocab)
	m.readUnk(o)
	m.readMerges(o)
	m.index()
	return m, o.done()
}

func (m *bpe) readUnk(o *object) {
	var unk *string
	if o.optional("unk_token", &unk); unk == nil {
		return
	}
	if m.unk = m.lookup(*unk); m.unk == noID {
		o.failField("unk_token", "%q is not in the vocabulary", *unk)
	}
}

func (m *bpe) readMerges(o *object) {
	var list []merge
	o.required("merges", &list)
	list = slices.DeleteFunc(list, func(m merge) bool { return m == merge{} })
	m.merges = mergeTable{
		ranks:    make(map[uint64]uint32, len(list)),
		products: make([]tokenID, len(list)),
	}
	for rank, pair := range list {
		if o.err != nil {
			return
		}
		if err := m.addMerge(uint32(rank), pair); err != nil {
			o.failField("merges", "number %d, %q and %q: %w", rank, pair[0], pair[1], err)
		}
	}
}

// addMerge adds a merge, in place of an earlier one of the same pair.
func (m *bpe) addMerge(rank uint32, pair merge) error {
	tail, ok := strings.CutPrefix(pair[1], m.prefix)
	if !ok {
		return fmt.Errorf("the second lacks continuing_subword_prefix %q", m.prefix)
	}
	var ids [3]tokenID
	for i, token := range []string{pair[0], pair[1], pair[0] + tail} {
		id, ok := m.vocab[token]
		if !ok {
			return fmt.Errorf("%q is not in the vocabulary", token)
		}
		ids[i] = id
	}
	m.merges.ranks[pairKey(ids[0], ids[1])] = rank
	m.merges.products[rank] = ids[2]
	return nil
}

// A tokenID is read from a whole number; null is not one.
type tokenID uint32

func (id *tokenID) UnmarshalJSON(raw []byte) error {
	n, err := strconv.ParseUint(string(raw), 10, 32)
	if err != nil {
		return fmt.Errorf("%.20s is not an id: a whole number from 0 to %d", raw, uint32(math.MaxUint32))
	}
	*id = tokenID(n)
	return nil
}

// A merge is read from ["a", "b"] or, in older files, from "a b". Of these,
// the line "#version: 0.2" is no merge, and remains empty.
type merge [2]string

func (m *merge) UnmarshalJSON(raw []byte) error {
	var pair []string
	if len(raw) > 0 && raw[0] == '"' {
		var line string
		if err := json.Unmarshal(raw, &line); err != nil {
			return err
		}
		if strings.HasPrefix(line, "#version") {
			return nil
		}
		pair = strings.Split(line, " ")
	} else if err := json.Unmarshal(raw, &pair); err != nil {
		return fmt.Errorf(`%.50s is neither ["a", "b"] nor "a b"`, raw)
	}
	if len(pair) != 2 || pair[0]+pair[1] == "" {
		return fmt.Errorf("%.50s is not two tokens", raw)
	}
	*m = merge(pair)
	return nil
}

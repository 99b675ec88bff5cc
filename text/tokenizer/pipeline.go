package tokenizer

// A Pipeline is the tokenizer that a tokenizer.json describes. A text goes
// through its stages in turn:
//
//	added tokens, as written
//	normalizer
//	added tokens, normalized
//	pre-tokenizer
//	model
//	post-processor
//
// and ids go through the vocabulary and the decoder.
type Pipeline struct {
	added           *finder
	normalize       normalizer
	addedNormalized *finder
	preTokenize     preTokenizer
	model           *bpe
	template        template
	decoder         decoder

	pieces   map[int]string
	addedIDs map[string]int
	special  map[int]bool
	roles    map[string]int // ids of bos_token and so on
}

// Encode returns the ids of text. With special, the post-processor adds its tokens. Bytes that are
// not UTF-8 are taken for U+FFFD. It is an error where that takes far more than a text is worth.
func (p *Pipeline) Encode(text string, special bool) (ids []int, err error) {
	m := newMeter(len(text))
	defer m.end(&err)
	ids = p.encode(m, text)
	if special {
		ids = p.template.wrap(ids)
	}
	return ids, nil
}

// encode is Encode without the post-processor.
func (p *Pipeline) encode(m *meter, text string) []int {
	var w word
	ids := make([]int, 0, len(text)/3+1)
	encodePiece := func(piece string, first bool) {
		if piece != "" {
			ids = p.model.encode(ids, piece, &w)
		}
	}
	p.added.split(m, validUTF8([]byte(text)), func(t *addedToken, stretch string, start int) {
		if t != nil {
			ids = append(ids, t.id)
			return
		}
		first := start == 0
		p.addedNormalized.split(m, p.normalize(m, stretch), func(t *addedToken, stretch string, start int) {
			if t != nil {
				ids = append(ids, t.id)
				return
			}
			p.preTokenize(m, stretch, first && start == 0, encodePiece)
		})
	})
	return ids
}

// Decode returns the text of ids, without special tokens if skipSpecial.
// Ids that no token has are skipped.
func (p *Pipeline) Decode(ids []int, skipSpecial bool) string {
	s := p.newStream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	return s.Flush()
}

// Piece returns the token of id, as the vocabulary spells it.
func (p *Pipeline) Piece(id int) (piece string, ok bool) {
	piece, ok = p.pieces[id]
	return piece, ok
}

// ID returns the id of a token as the vocabulary spells it.
func (p *Pipeline) ID(piece string) (id int, ok bool) {
	if id, ok = p.addedIDs[piece]; ok {
		return id, true
	}
	n, ok := p.model.vocab[piece]
	return int(n), ok
}

// Size returns the number of tokens, added ones included. Ids may be larger
// where those of the vocabulary have gaps.
func (p *Pipeline) Size() int { return len(p.pieces) }

// BOS returns the token that begins a text, if tokenizer_config.json names one.
func (p *Pipeline) BOS() (id int, ok bool) { return p.role("bos_token") }

// EOS returns the token that ends a text, if tokenizer_config.json names one.
func (p *Pipeline) EOS() (id int, ok bool) { return p.role("eos_token") }

// UNK returns the token for what is unknown, if tokenizer_config.json names one.
func (p *Pipeline) UNK() (id int, ok bool) { return p.role("unk_token") }

// PAD returns the token that pads texts, if tokenizer_config.json names one.
func (p *Pipeline) PAD() (id int, ok bool) { return p.role("pad_token") }

func (p *Pipeline) role(name string) (id int, ok bool) {
	id, ok = p.roles[name]
	return id, ok
}

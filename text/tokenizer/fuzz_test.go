package tokenizer

import "testing"

// smallFiles have every component, for fuzzing to start from.
func smallFiles() (files []string) {
	files = []string{
		`{` + smallModel + `, ` + smallAdded + `, ` + smallTemplate + `}`,
		`{"model": {"vocab": {"<unk>": 0, "##b</w>": 1, "a": 2, "<0x63>": 3, "a##b</w>": 4, "ab</w>": 5}, "merges": [["a", "##b</w>"]],
			"unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "ignore_merges": true,
			"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}}`,
	}
	for stage, parts := range map[string][]string{
		"normalizer": {
			`{"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Prepend", "prepend": "_"}]}`,
			`{"type": "Replace", "pattern": {"Regex": "a+|(?i:k)[^b]?"}, "content": "b"}`,
		},
		"pre_tokenizer": {
			`{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}`,
			`{"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true}`,
			`{"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|\\p{L}{1,3}"}, "behavior": "MergedWithNext", "invert": true}`,
			`{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Removed"}]}`,
		},
		"post_processor": {`{"type": "BertProcessing", "sep": ["b", 3], "cls": ["a", 2]}`},
		"decoder": {
			`{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "aab"}, "content": "b"}, {"type": "Strip", "content": "a", "start": 1, "stop": 2}]}`,
			`{"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "WordPiece", "prefix": "a", "cleanup": true}]}`,
			`{"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "b"}, {"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": true}, {"type": "ByteLevel"}]}`,
			`{"type": "Metaspace", "replacement": "_"}`,
		},
	} {
		for _, part := range parts {
			files = append(files, `{"`+stage+`": `+part+`, `+smallModel+`, `+smallAdded+`}`)
		}
	}
	return files
}

func TestSmallFiles(t *testing.T) {
	for _, file := range smallFiles() {
		tok, err := Parse([]byte(file))
		if err != nil {
			t.Errorf("Parse(%s): %v", file, err)
			continue
		}
		if ids, err := tok.Encode("ab <s>c", true); err == nil {
			checkStream(t, tok, ids, false)
		}
	}
}

// FuzzParse gives an error or a working tokenizer for any file.
func FuzzParse(f *testing.F) {
	for _, file := range smallFiles() {
		f.Add([]byte(file), "a ab1! <s>b\n")
	}
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := Parse(file)
		if err != nil {
			return
		}
		for _, special := range []bool{false, true} {
			ids, err := tok.Encode(text, special)
			if err != nil {
				continue
			}
			for _, id := range ids {
				if _, ok := tok.Piece(id); !ok {
					t.Fatalf("Encode(%q) has id %d, which no token has", text, id)
				}
			}
			checkStream(t, tok, ids, special)
		}
	})
}

// FuzzEncode takes any text through every golden tokenizer and back.
func FuzzEncode(f *testing.F) {
	tokenizers := loadTokenizers(f)
	for _, folder := range goldenFolders(f) {
		_, file := loadGolden(f, folder)
		for _, c := range file.Cases {
			if len(c.Text) < 100 {
				f.Add(c.Text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = validUTF8([]byte(text))
		for name, tok := range tokenizers {
			checkText(t, name, tok, text)
		}
	})
}

package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/krait-ml/krait"
	"github.com/krait-ml/krait/checkpoint"
	"github.com/krait-ml/krait/checkpoint/hub"
	"github.com/spf13/cobra"
)

// tokenizeFlags say what tokenize reads and writes.
type tokenizeFlags struct {
	decode, pieces, special, skipSpecial, jsonl bool
}

func newTokenize() *cobra.Command {
	var f tokenizeFlags
	from := modelArg{kind: "DIR or a tokenizer.json", needed: true, part: hub.Tokenizer}
	c := &cobra.Command{
		Use:   "tokenize [flags] DIR",
		Short: "Turn text into token ids, or back",
		Long: `Tokenize reads text on standard input and prints its token ids, as Hugging Face tokenizers
does. With --decode it reads ids and prints text. With --jsonl each line is a case:
{"text": "..."} in and {"ids": [...]} out, and the reverse with --decode. DIR is a model's
folder or a tokenizer.json.`,
		Example: `  echo -n "In the beginning" | krait tokenize ~/models/mamba-130m-hf
  echo "688 253 5068" | krait tokenize --decode ~/models/mamba-130m-hf
  krait tokenize --jsonl tokenizer.json < texts.jsonl > ids.jsonl`,
		Args: takes(0, 1, "one DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := from.take(c, args)
			if err != nil {
				return err
			}
			t, err := checkpoint.OpenTokenizer(path, 0)
			if err != nil {
				return err
			}
			w := bufio.NewWriter(c.OutOrStdout())
			if f.jsonl {
				err = f.lines(t, stdin(c), w)
			} else if text, e := readText(c, "-"); e != nil {
				err = e
			} else {
				err = f.all(t, string(text), w)
			}
			return cmp.Or(err, w.Flush())
		},
	}
	from.add(c)
	c.Flags().BoolVar(&f.decode, "decode", false, "read ids, print text")
	c.Flags().BoolVar(&f.pieces, "pieces", false, "print each token as the vocabulary spells it, one per line")
	c.Flags().BoolVar(&f.special, "special", true, "add special tokens, such as BOS, as the tokenizer does")
	c.Flags().BoolVar(&f.skipSpecial, "skip-special", false, "leave out special tokens, with --decode")
	c.Flags().BoolVar(&f.jsonl, "jsonl", false, "read and write a JSON object per line")
	return c
}

func (f *tokenizeFlags) all(t krait.Tokenizer, input string, w io.Writer) error {
	if f.decode {
		ids, err := readIDs(input)
		if err != nil {
			return err
		}
		if err := known(t, ids); err != nil {
			return err
		}
		_, err = io.WriteString(w, t.Decode(ids, f.skipSpecial))
		return err
	}
	ids, err := t.Encode(input, f.special)
	if err != nil {
		return err
	}
	if f.pieces {
		for _, id := range ids {
			piece, _ := t.Piece(id)
			fmt.Fprintf(w, "%d\t%s\n", id, strconv.Quote(piece))
		}
		return nil
	}
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.Itoa(id)
	}
	_, err = fmt.Fprintln(w, strings.Join(list, " "))
	return err
}

// known fails for ids that decoding would leave out.
func known(t krait.Tokenizer, ids []int) error {
	for i, id := range ids {
		if _, ok := t.Piece(id); !ok {
			return fmt.Errorf("id %d of the input is %d, which the tokenizer does not have", i, id)
		}
	}
	return nil
}

// lines handles a JSON object per line.
func (f *tokenizeFlags) lines(t krait.Tokenizer, r io.Reader, w io.Writer) error {
	in := json.NewDecoder(r)
	var line bytes.Buffer
	out := json.NewEncoder(&line)
	out.SetEscapeHTML(false)
	for n := 1; ; n++ {
		var c struct {
			Text *string `json:"text"`
			IDs  *[]int  `json:"ids"`
		}
		err := in.Decode(&c)
		switch {
		case err == io.EOF:
			return nil
		case err == nil && f.decode && c.IDs == nil:
			err = fmt.Errorf(`the key "ids" is missing`)
		case err == nil && !f.decode && c.Text == nil:
			err = fmt.Errorf(`the key "text" is missing`)
		}
		if err == nil && f.decode {
			err = known(t, *c.IDs)
		}
		var answer any
		if err == nil {
			answer, err = f.one(t, c.Text, c.IDs)
		}
		if err != nil {
			return fmt.Errorf("case %d: %w", n, err)
		}
		line.Reset()
		if err := out.Encode(answer); err != nil {
			return err
		}
		// Some readers end a line at U+0085, the one such character that is left bare.
		if _, err := w.Write(bytes.ReplaceAll(line.Bytes(), []byte("\u0085"), []byte(`\u0085`))); err != nil {
			return err
		}
	}
}

// one is the answer to a case.
func (f *tokenizeFlags) one(t krait.Tokenizer, text *string, ids *[]int) (any, error) {
	if f.decode {
		return struct {
			Text string `json:"text"`
		}{t.Decode(*ids, f.skipSpecial)}, nil
	}
	list, err := t.Encode(*text, f.special)
	if err != nil {
		return nil, err
	}
	if list == nil {
		list = []int{}
	}
	if !f.pieces {
		return struct {
			IDs []int `json:"ids"`
		}{list}, nil
	}
	pieces := make([]string, len(list))
	for i, id := range list {
		pieces[i], _ = t.Piece(id)
	}
	return struct {
		IDs    []int    `json:"ids"`
		Pieces []string `json:"pieces"`
	}{list, pieces}, nil
}

package krait

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/krait-ml/krait/checkpoint/gguf"
	"github.com/krait-ml/krait/models"
	"github.com/krait-ml/krait/text/chat"
	"github.com/krait-ml/krait/text/tokenizer"
)

// ChatTemplate is what makes prompts of conversations, as the checkpoint says, or an error:
// [chat.ErrNone] where it has none.
func (m *Model) ChatTemplate() (*chat.Template, error) {
	if m.chat == nil {
		return nil, chat.ErrNone
	}
	return m.chat()
}

// chatAt reads the chat template of a folder, or of a GGUF file, when somebody asks for it.
func chatAt(path string) func() (*chat.Template, error) {
	return sync.OnceValues(func() (*chat.Template, error) {
		file, err := models.GGUFAt(path)
		switch {
		case err != nil:
			return nil, err
		case file == "":
			return chat.Open(os.DirFS(path))
		}
		f, err := gguf.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		_, config, err := tokenizer.FilesFrom(f.Value)
		switch {
		case err != nil:
		case config == nil:
			return nil, chat.ErrNone
		default:
			var t *chat.Template
			if t, err = chat.Parse(config); err == nil || errors.Is(err, chat.ErrNone) {
				return t, err
			}
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	})
}

// chatOf reads the chat template of a file system when somebody asks for it.
func chatOf(fsys fs.FS) func() (*chat.Template, error) {
	return sync.OnceValues(func() (*chat.Template, error) { return chat.Open(fsys) })
}

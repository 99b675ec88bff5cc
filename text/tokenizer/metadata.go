package tokenizer

import "fmt"

// VocabularyFrom reads the tokenizer in the metadata of a GGUF file; value returns the value of a
// key, as gguf.File.Value does. It returns nil if the model is absent or no_vocab, or the list of
// tokens is empty. A value of a wrong type is an error.
func VocabularyFrom(value func(key string) (any, bool)) (*Vocabulary, error) {
	m := &metadata{value: value}
	v := &Vocabulary{
		Model: get[string](m, "ggml.model"), Pre: get[string](m, "ggml.pre"),
		Tokens: get[[]string](m, "ggml.tokens"), Scores: get[[]float32](m, "ggml.scores"), Merges: get[[]string](m, "ggml.merges"),
		BOS: m.id("ggml.bos_token_id"), EOS: m.id("ggml.eos_token_id"), Unknown: m.id("ggml.unknown_token_id"), Pad: m.id("ggml.padding_token_id"),
		AddBOS: m.flag("ggml.add_bos_token"), AddEOS: m.flag("ggml.add_eos_token"), SpacePrefix: m.flag("ggml.add_space_prefix"),
		ChatTemplate: get[string](m, "chat_template"),
	}
	for _, kind := range get[[]int32](m, "ggml.token_type") {
		v.Types = append(v.Types, int(kind))
	}
	switch {
	case m.err != nil:
		return nil, m.err
	case v.Model == "", v.Model == "none", v.Model == "no_vocab", len(v.Tokens) == 0:
		return nil, nil
	}
	return v, nil
}

// Keys of a GGUF file that have the files of Hugging Face as they are. The first is the
// format's own, the other Krait's.
const (
	FileKey   = "tokenizer.huggingface.json"
	ConfigKey = "krait.tokenizer_config"
)

// FilesFrom returns the tokenizer.json and the tokenizer_config.json that the metadata of a GGUF
// file contains, or equivalents made of its lists of tokens; nil if it has no tokenizer.
func FilesFrom(value func(key string) (any, bool)) (tokenizer, config []byte, err error) {
	v, err := VocabularyFrom(value)
	if err != nil {
		return nil, nil, err
	}
	file, _ := value(FileKey)
	text, _ := file.(string)
	if text == "" && v == nil {
		return nil, nil, nil
	}
	if v != nil {
		tokenizer, config, err = v.JSON()
	}
	if text == "" {
		return tokenizer, config, err
	}
	if kept, _ := value(ConfigKey); kept != nil {
		text, _ := kept.(string)
		config = []byte(text)
	}
	return []byte(text), config, nil
}

// metadata reads keys, and remembers the first error.
type metadata struct {
	value func(key string) (any, bool)
	err   error
}

func get[T any](m *metadata, key string) (t T) {
	key = "tokenizer." + key
	v, ok := m.value(key)
	t, is := v.(T)
	if ok && !is && m.err == nil {
		m.err = fmt.Errorf("%s has a value of type %T; it must be %T", key, v, t)
	}
	return t
}

func (m *metadata) id(key string) int {
	switch v, _ := m.value("tokenizer." + key); v := v.(type) {
	case nil:
		return -1
	case uint32:
		if v < 1<<31 {
			return int(v)
		}
		return -1 // older files say none so
	case int32:
		return max(-1, int(v))
	}
	return int(get[uint32](m, key))
}

func (m *metadata) flag(key string) *bool {
	if _, ok := m.value("tokenizer." + key); !ok {
		return nil
	}
	b := get[bool](m, key)
	return &b
}

// Metadata is the inverse of [VocabularyFrom]: keys of a GGUF file and their values, which
// each calls with.
func (v *Vocabulary) Metadata(each func(key string, value any)) {
	put := func(key string, value any) { each("tokenizer."+key, value) }
	put("ggml.model", v.Model)
	if v.Pre != "" {
		put("ggml.pre", v.Pre)
	}
	put("ggml.tokens", v.Tokens)
	if v.Scores != nil {
		put("ggml.scores", v.Scores)
	}
	types := make([]int32, len(v.Tokens))
	for id := range types {
		types[id] = int32(v.kind(id))
	}
	put("ggml.token_type", types)
	if v.Merges != nil {
		put("ggml.merges", v.Merges)
	}
	for _, role := range []struct {
		key string
		id  int
	}{{"bos", v.BOS}, {"eos", v.EOS}, {"unknown", v.Unknown}, {"padding", v.Pad}} {
		if role.id >= 0 {
			put("ggml."+role.key+"_token_id", uint32(role.id))
		}
	}
	for _, flag := range []struct {
		key string
		set *bool
	}{{"add_bos_token", v.AddBOS}, {"add_eos_token", v.AddEOS}, {"add_space_prefix", v.SpacePrefix}} {
		if flag.set != nil {
			put("ggml."+flag.key, *flag.set)
		}
	}
	if v.ChatTemplate != "" {
		put("chat_template", v.ChatTemplate)
	}
}

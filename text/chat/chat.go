// Package chat makes prompts of conversations, by the chat template that comes with a checkpoint.
//
//	t, err := chat.Open(os.DirFS(dir))
//	if err != nil { … } // chat.ErrNone: the checkpoint has none
//	prompt, err := t.Render([]chat.Message{{Role: "user", Content: "Hello"}}, chat.Options{Generate: true})
//	ids, err := chat.Encode(tokenizer, prompt) // without a bos of its own: the template writes it
//
// Templates are of Jinja2, as transformers runs them, and may be hostile: what they may do is
// bounded (docs/chat.md).
//
// What users write can spell special tokens, such as the one that ends a turn, and becomes these
// tokens where a prompt is encoded, as it does in transformers. [Options.Guard] is against that.
package chat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/krait-ml/krait/internal/files"
	"github.com/krait-ml/krait/internal/jinja"
	"github.com/krait-ml/krait/text/tokenizer"
)

// Message is one message of a conversation.
type Message struct {
	Role    string // system, user, assistant, or what else the template knows
	Content string
	// Fields are further ones that the template may read, such as tool_calls or name, as
	// encoding/json decodes them or as json.RawMessage, keys in their order; content replaces Content.
	Fields map[string]any
}

// Options say how a conversation is rendered. The zero value ends after its last message.
type Options struct {
	// Generate adds what the model's answer begins after.
	Generate bool
	// Continue ends the prompt within the last message, which the model's answer continues. It must be
	// the assistant's, and Generate false.
	Continue bool
	// Template is the name of one of several, such as tool_use; empty is the one for chats.
	Template string
	// Tools are given to the template as JSON, keys in their order; nil: none.
	Tools json.RawMessage
	// Variables are given to the template, too, such as enable_thinking.
	Variables map[string]any
	// Guard keeps tools, and what messages say, and their roles, but for the assistant's, from becoming
	// special tokens: places in them where one of these texts is spelled are marked, and
	// [Encode] takes them apart there. A prompt that has marks must be encoded by it.
	// [Specials] lists those of a tokenizer.
	Guard []string
	// Now is the date for templates that ask; the zero value is the time of the rendering.
	Now time.Time
}

// Template makes prompts. It may be used by several goroutines at once.
type Template struct {
	templates map[string]*jinja.Template
	texts     map[string]string // of the templates
	specials  map[string]any    // bos_token and the like, by name
}

// ErrNone is the error of a checkpoint without a chat template.
var ErrNone = errors.New("the checkpoint has no chat template")

const usual = "default" // the template for chats, among several

// most is how many bytes a configuration may have.
const most = 16 << 20

// Open reads the template of a Hugging Face folder: chat_template.jinja, or the key chat_template
// of tokenizer_config.json, a text or a list of named ones. The error is [ErrNone] if the folder
// has neither.
func Open(fsys fs.FS) (*Template, error) {
	const name = "tokenizer_config.json"
	t := empty()
	config, err := files.ReadFS(fsys, name, most)
	if err == nil {
		if err := t.configure(config); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err := files.ReadFS(fsys, "chat_template.jinja", most)
	if err == nil {
		err = t.add(usual, string(text))
		if err != nil {
			err = fmt.Errorf("chat_template.jinja: %w", err)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(t.templates) == 0 {
		return nil, ErrNone
	}
	return t, nil
}

// Parse reads the template of a tokenizer_config.json. The error is [ErrNone] if it has none.
func Parse(config []byte) (*Template, error) {
	t := empty()
	if err := t.configure(config); err != nil {
		return nil, err
	}
	if len(t.templates) == 0 {
		return nil, ErrNone
	}
	return t, nil
}

func empty() *Template {
	return &Template{templates: map[string]*jinja.Template{}, texts: map[string]string{}, specials: map[string]any{}}
}

// New makes a template of a text. Specials are variables that it may read, such as bos_token
// and eos_token; those that it reads and are not given are undefined.
func New(source string, specials map[string]string) (*Template, error) {
	t := empty()
	for name, text := range specials {
		t.specials[name] = text
	}
	if err := t.add(usual, source); err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return t, nil
}

// Plain is the template for models that have none: lines that begin with who says them.
//
//	User: Hello
//	Assistant:
func Plain() *Template {
	t, err := New("{% for m in messages %}{% if m.role == 'system' %}{{ m.content | trim }}\n\n"+
		"{% else %}{{ m.role | capitalize }}: {{ m.content | trim }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}", nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return t
}

func (t *Template) add(name, source string) (err error) {
	t.texts[name] = source
	t.templates[name], err = jinja.Parse(source)
	return err
}

// configure reads a tokenizer_config.json.
func (t *Template) configure(config []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return err
	}
	for key, raw := range fields {
		if strings.HasSuffix(key, "_token") {
			if content, ok := tokenText(raw); ok {
				t.specials[key] = content
			}
		}
	}
	if err := t.templatesOf(fields["chat_template"]); err != nil {
		return fmt.Errorf("chat_template: %w", err)
	}
	return nil
}

// tokenText is a token, which is a text or an object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return *text, true
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) == nil && object.Content != nil {
		return *object.Content, true
	}
	return "", false
}

// templatesOf reads a text, or a list of named ones.
func (t *Template) templatesOf(raw json.RawMessage) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		return t.add(usual, source)
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New("it is neither a text nor a list of texts with names")
	}
	for _, x := range list {
		if err := t.add(x.Name, x.Template); err != nil {
			return fmt.Errorf("%q: %w", x.Name, err)
		}
	}
	return nil
}

// Names are those of the templates, which [Options.Template] picks from.
func (t *Template) Names() []string { return slices.Sorted(maps.Keys(t.templates)) }

// Text is the source of a template; an empty name is the one for chats. It is empty if there is
// none.
func (t *Template) Text(name string) string {
	return t.texts[cmp.Or(name, usual)]
}

// Special is a special token's text by its role, such as eos_token; empty: there is none.
func (t *Template) Special(role string) string {
	text, _ := t.specials[role].(string)
	return text
}

// Render makes a prompt of a conversation. Where the template refuses the messages the error
// is a [*Refused]; others say what is wrong with the template, and in which line.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	name := cmp.Or(o.Template, usual)
	source := t.templates[name]
	if source == nil {
		return "", fmt.Errorf("unknown chat template %q; it must be one of %s", name, strings.Join(t.Names(), ", "))
	}
	vars, size, err := t.variables(messages, &o)
	if err != nil {
		return "", err
	}
	limits := jinja.Limits{Work: 2_000_000 + 16*size, Memory: 64<<20 + 16*size, Output: 16<<20 + 4*size}
	if !o.Now.IsZero() {
		limits.Now = func() time.Time { return o.Now }
	}
	text, err := source.Render(vars, limits)
	var raised *jinja.Raised
	switch {
	case errors.As(err, &raised):
		return "", &Refused{raised.Message}
	case err != nil:
		return "", fmt.Errorf("chat template: %w", err)
	}
	if o.Continue {
		return continued(text, messages)
	}
	return text, nil
}

// continued cuts a prompt behind what the last message says.
func continued(prompt string, messages []Message) (string, error) {
	last := Message{}
	if n := len(messages); n > 0 {
		last = messages[n-1]
	}
	said := strings.TrimSpace(last.Content)
	at := strings.LastIndex(prompt, said)
	switch {
	case last.Role != "assistant" || said == "":
		return "", &Refused{"the last message must be the assistant's, and say something, to be continued"}
	case at < 0:
		return "", &Refused{"the template changes the last message, which therefore cannot be continued"}
	}
	if whole := strings.TrimLeft(last.Content, " \t\r\n"); strings.HasPrefix(prompt[at:], whole) {
		said = whole
	}
	return prompt[:at+len(said)], nil
}

// Refused is the error of messages that the template does not take, in its own words.
type Refused struct{ Message string }

func (r *Refused) Error() string { return "the chat template refuses the messages: " + r.Message }

// variables are what the template reads, and how many bytes messages have.
func (t *Template) variables(messages []Message, o *Options) (map[string]any, int, error) {
	vars := maps.Clone(t.specials)
	texts := guardsOf(o.Guard)
	list, size := make([]any, len(messages)), len(o.Tools)
	for i, m := range messages {
		guards := texts
		if m.Role == "assistant" { // which writes them rightly
			guards = nil
		}
		d := jinja.NewDict("role", guards.mark(m.Role), "content", guards.mark(m.Content))
		for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
			v, err := jinja.Of(m.Fields[key])
			if err != nil {
				return nil, 0, fmt.Errorf("message %d: %q: %w", i, key, err)
			}
			d.Set(key, jinja.EachText(v, func(s string) string { size += len(s); return guards.mark(s) }))
		}
		list[i] = d
		size += len(m.Role) + len(m.Content) + 64
	}
	vars["messages"], vars["add_generation_prompt"], vars["tools"] = list, o.Generate, nil
	if o.Tools != nil {
		tools, err := jinja.FromJSON(o.Tools)
		if err != nil {
			return nil, 0, fmt.Errorf("tools: %w", err)
		}
		vars["tools"] = jinja.EachText(tools, texts.mark)
	}
	for name, v := range o.Variables {
		x, err := jinja.Of(v)
		if err != nil {
			return nil, 0, fmt.Errorf("variable %s: %w", name, err)
		}
		vars[name] = x
	}
	return vars, size, nil
}

// mark is where [Encode] takes a prompt apart. It is no character (Unicode keeps it for
// such uses), and what users write has it taken out.
const mark = "\ufdd0"

// guards are texts by their first byte: few begin at any place, of the thousand special
// tokens that a vocabulary may have.
type guards map[byte][]string

func guardsOf(texts []string) guards {
	g := guards{}
	for _, t := range texts {
		if t != "" {
			g[t[0]] = append(g[t[0]], t)
		}
	}
	return g
}

// mark marks the places of the texts.
func (g guards) mark(content string) string {
	if len(g) == 0 {
		return content
	}
	content = strings.ReplaceAll(content, mark, "")
	var b strings.Builder
	for i := 0; i < len(content); {
		_, n := utf8.DecodeRuneInString(content[i:])
		texts := g[content[i]]
		at := slices.IndexFunc(texts, func(t string) bool { return strings.HasPrefix(content[i:], t) })
		switch {
		case at < 0:
			b.WriteString(content[i : i+n])
		case len(texts[at]) > n:
			b.WriteString(content[i:i+n] + mark)
		}
		i += n
	}
	return b.String()
}

// Encode makes token ids of a prompt. Nothing is added: templates write the bos token that
// a model wants. Special tokens that the prompt spells are these tokens, but for those that
// [Options.Guard] marked. A special token of one character cannot be taken apart, and is
// left out; tokenizers that put a space before each text put one where a text is taken apart.
func Encode(t tokenizer.Tokenizer, prompt string) ([]int, error) {
	var ids []int
	for part := range strings.SplitSeq(prompt, mark) {
		if part == "" {
			continue
		}
		list, err := t.Encode(part, false)
		if err != nil {
			return nil, err
		}
		ids = append(ids, list...)
	}
	return ids, nil
}

// Specials are the texts of a tokenizer's special tokens, for [Options.Guard].
func Specials(t tokenizer.Tokenizer) []string {
	if s, ok := t.(interface{ Specials() []string }); ok {
		return s.Specials()
	}
	return nil
}

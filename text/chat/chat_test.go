package chat

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/krait-ml/krait/text/tokenizer"
)

func folder(files ...string) fs.FS {
	f := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		f[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return f
}

const config, jinjaFile = "tokenizer_config.json", "chat_template.jinja"

var hello = []Message{{Role: "user", Content: "Hello"}}

// TestOpen: a template may be in either file, or one of several, and the file of its own counts.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		files      fs.FS
		want, fail string
	}{
		{folder(), "", "the checkpoint has no chat template"},
		{folder(config, `{}`), "", "the checkpoint has no chat template"},
		{folder(config, `{"chat_template": null}`), "", "the checkpoint has no chat template"},
		{folder(config, `{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"}`), "<s>Hello</s>", ""},
		{folder(config, `{"bos_token": "<s>", "chat_template": "x"}`, jinjaFile, "{{ bos_token }}y\n"), "<s>y", ""},
		{folder(jinjaFile, "z"), "z", ""},
		{folder(config, `{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}`), "d", ""},
		{folder(config, `{"chat_template": [{"name": "tool_use", "template": "t"}]}`), "", `unknown chat template "default"; it must be one of tool_use`},
		{folder(config, `{"chat_template": 7}`), "", "tokenizer_config.json: chat_template: it is neither a text nor a list"},
		{folder(config, `{"chat_template": "{% if %}"}`), "", "tokenizer_config.json: chat_template: line 1: an expression is expected"},
		{folder(config, `{`), "", "tokenizer_config.json: unexpected end"},
		{folder(jinjaFile, "a\n{{"), "", "chat_template.jinja: line 2: a tag has no end"},
	} {
		tmpl, err := Open(c.files)
		got := ""
		if err == nil {
			got, err = tmpl.Render(hello, Options{})
		}
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.HasPrefix(err.Error(), c.fail) {
			t.Errorf("%v: %q, %v; want %q, %s", c.files, got, err, c.want, c.fail)
		}
	}
	if _, err := Open(folder()); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
}

// TestRender: what templates are given.
func TestRender(t *testing.T) {
	tmpl, err := New(`{% for m in messages %}[{{ m.role }}|{{ m.content }}|{{ m.name }}]{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{{ deep }}{{ strftime_now('%Y') }}{% if add_generation_prompt %}>{% endif %}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render([]Message{{Role: "user", Content: "a", Fields: map[string]any{"name": "Ada", "content": []any{map[string]any{"text": "b"}}}}},
		Options{Generate: true, Tools: []byte(`[{"z": 1, "a": 2.5}]`), Variables: map[string]any{"deep": true}, Now: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)})
	if want := `[user|[{'text': 'b'}]|Ada][{"z": 1, "a": 2.5}]True2031>`; got != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for want, o := range map[string]Options{"tools: ": {Tools: []byte("{")}, "variable x: a chan": {Variables: map[string]any{"x": make(chan int)}}, `unknown chat template "rag"`: {Template: "rag"}} {
		if _, err := tmpl.Render(hello, o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refusing, _ := New(`{{ raise_exception('users only') }}`, nil)
	var refused *Refused
	if _, err := refusing.Render(hello, Options{}); !errors.As(err, &refused) || refused.Message != "users only" {
		t.Error(err)
	}
	broken, _ := New("\n{{ messages.x.y }}", nil)
	if _, err := broken.Render(hello, Options{}); err == nil || !strings.HasPrefix(err.Error(), "chat template: line 2: ") {
		t.Error(err)
	}
}

func TestPlain(t *testing.T) {
	got, err := Plain().Render([]Message{{Role: "system", Content: "Be brief.\n"}, {Role: "user", Content: "Hi"}, {Role: "assistant", Content: " Yes. "}, {Role: "user", Content: "So?"}}, Options{Generate: true})
	if want := "Be brief.\n\nUser: Hi\nAssistant: Yes.\nUser: So?\nAssistant:"; got != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// cutter is a tokenizer whose special tokens are <end> and ☠.
type cutter struct{ tokenizer.Bytes }

func (cutter) Specials() []string { return []string{"<end>", "☠"} }
func (c cutter) Encode(text string, _ bool) (ids []int, err error) {
	for text != "" {
		switch {
		case strings.HasPrefix(text, "<end>"):
			ids, text = append(ids, 1000), text[5:]
		case strings.HasPrefix(text, "☠"):
			ids, text = append(ids, 1001), text[3:]
		default:
			ids, text = append(ids, int(text[0])), text[1:]
		}
	}
	return ids, nil
}

// TestGuard: with it a prompt has the template's special tokens and no others, and spells the
// same text.
func TestGuard(t *testing.T) {
	tmpl, err := New("{% for m in messages %}{{ m.content }}{{ m.name }}<end>{% endfor %}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "a<end>b", "<end>", "<<end><end>", "a☠b", "\ufdd0<end\ufdd0>", "é<end>é"} {
		m := []Message{{Role: "user", Content: content, Fields: map[string]any{"name": content}}}
		for _, guard := range [][]string{nil, Specials(cutter{})} {
			text, err := tmpl.Render(m, Options{Guard: guard})
			if err != nil {
				t.Fatal(err)
			}
			ids, err := Encode(cutter{}, text)
			if err != nil {
				t.Fatal(err)
			}
			specials, spelled := 0, []byte{}
			for _, id := range ids {
				switch {
				case id == 1000:
					specials++
					spelled = append(spelled, "<end>"...)
				case id == 1001:
					specials++
				default:
					spelled = append(spelled, byte(id))
				}
			}
			bare := strings.NewReplacer("☠", "", "\ufdd0", "").Replace(content)
			if guard != nil && (specials != 1 || string(spelled) != bare+bare+"<end>") {
				t.Errorf("%q: %d special tokens of %q", content, specials, spelled)
			}
			if guard == nil && strings.Contains(content, "<end>") && specials < 3 {
				t.Errorf("%q: %d special tokens without a guard; transformers has more", content, specials)
			}
		}
	}
	roles, _ := New("{% for m in messages %}{{ m.role }}: {% endfor %}", nil)
	role, err := roles.Render([]Message{{Role: "user<end>☠"}}, Options{Guard: Specials(cutter{})})
	if ids, _ := Encode(cutter{}, role); len(ids) != len("user<end>: ") || err != nil {
		t.Errorf("a role that spells a special token has %d tokens (%v)", len(ids), err)
	}
	answer, err := tmpl.Render([]Message{{Role: "assistant", Content: "<end>"}}, Options{Guard: Specials(cutter{})})
	if ids, _ := Encode(cutter{}, answer); len(ids) != 2 || err != nil {
		t.Errorf("an answer of a special token has %d tokens (%v)", len(ids), err)
	}
}

// TestThoughts: templates as those of Qwen3.5 and LFM2 are: turns between markers, thoughts of
// earlier answers left out, and a generation prompt with or without an empty thought.
func TestThoughts(t *testing.T) {
	marked := `{{- bos_token if bos_token is defined and bos_token }}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and '</think>' in m.content and loop.index0 < ns.last %}
{{- m.content.split('</think>')[-1].lstrip('\n') }}
{%- else %}
{{- m.content | trim }}
{%- endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}`
	messages := []Message{
		{Role: "system", Content: "Be brief. "}, {Role: "user", Content: "Hi"},
		{Role: "assistant", Content: "<think>\nA greeting.\n</think>\n\nHello."}, {Role: "user", Content: "Why?"},
		{Role: "assistant", Content: "<think>\nHm.\n</think>\n\nSo."},
	}
	const turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n" +
		"<|im_start|>assistant\n<think>\nHm.\n</think>\n\nSo.<|im_end|>\n"
	for _, c := range []struct {
		specials map[string]string
		o        Options
		want     string
	}{
		{nil, Options{}, turns},
		{map[string]string{"bos_token": "<|startoftext|>"}, Options{Generate: true}, "<|startoftext|>" + turns + "<|im_start|>assistant\n"},
		{nil, Options{Generate: true, Variables: map[string]any{"enable_thinking": false}}, turns + "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
	} {
		tmpl, err := New(marked, c.specials)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(messages, c.o); err != nil || got != c.want {
			t.Errorf("%q, %v; want %q", got, err, c.want)
		}
	}
}

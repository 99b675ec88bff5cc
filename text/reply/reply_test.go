package reply

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/krait-ml/krait/internal/goldens"
	"github.com/krait-ml/krait/text/constrain"
)

// weather and note are the tools of the tests.
var (
	weather = Tool{Name: "get_weather", Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
		"exact": {"type": "boolean"}, "near": {"type": "array", "items": {"enum": ["sea", null, true]}, "maxItems": 2}}, "required": ["city"], "additionalProperties": false}`)}
	note = Tool{Name: "note", Parameters: json.RawMessage(`{"type": "object", "properties": {"kind": {"enum": ["todo", "é"]}, "text": {"type": "string", "pattern": "^[a-c\"<\n]+$", "maxLength": 9}}, "required": ["text"], "additionalProperties": false}`)}
	ping = Tool{Name: "ping"}
)

func configOf(t testing.TB, name string, o Config) *Config {
	f, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	o.Format = f
	if o.Tools == nil {
		o.Tools = []Tool{weather, note, ping}
	}
	if err := o.Read(); err != nil {
		t.Fatal(err)
	}
	return &o
}

// call is a whole call.
type call struct{ Name, Arguments string }

// heard is an answer that was read.
type heard struct {
	Reasoning, Content string
	Calls              []call
}

func (h *heard) add(o Output) error {
	h.Reasoning += o.Reasoning
	h.Content += o.Content
	for _, d := range o.Calls {
		if d.Name != "" {
			h.Calls = append(h.Calls, call{d.Name, ""})
		}
		if d.Index != len(h.Calls)-1 {
			return fmt.Errorf("a part of call %d behind %d calls", d.Index, len(h.Calls))
		}
		h.Calls[d.Index].Arguments += d.Arguments
	}
	return nil
}

// hear reads an answer that comes in pieces.
func hear(t testing.TB, c *Config, cut bool, pieces ...string) (h heard) {
	t.Helper()
	p := c.Parser()
	for _, piece := range pieces {
		if err := h.add(p.Push(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.add(p.End(cut)); err != nil {
		t.Fatal(err)
	}
	if p.Calls() != len(h.Calls) {
		t.Fatalf("%d calls, %d begun", len(h.Calls), p.Calls())
	}
	return h
}

const (
	rome = `{"city": "Rome", "days": 2, "near": [null, true, "sea"]}`
	todo = `{"text": "a\"\nb", "kind": "é"}`
)

// texts are how each format writes the calls of rome, todo and ping.
var texts = map[string]string{
	"hermes":   "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + rome + "}\n</tool_call>\n<tool_call>\n{\"name\": \"note\", \"arguments\": " + todo + "}\n</tool_call>\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
	"nemotron": `<TOOLCALL>[{"name": "get_weather", "arguments": ` + rome + `}, {"name": "note", "arguments": ` + todo + `}, {"name": "ping", "arguments": {}}]</TOOLCALL>`,
	"jamba":    "<tool_calls>[\n{\"name\": \"get_weather\", \"arguments\": " + rome + "},\n{\"name\": \"note\", \"arguments\": " + todo + "},\n{\"name\": \"ping\", \"arguments\": {}}\n]</tool_calls>",
	"granite":  `<|tool_call|>[{"name": "get_weather", "arguments": ` + rome + `}, {"name": "note", "arguments": ` + todo + `}, {"name": "ping", "arguments": {}}]`,
	"mistral":  `[TOOL_CALLS][{"name": "get_weather", "arguments": ` + rome + `}, {"name": "note", "arguments": ` + todo + `}, {"name": "ping", "arguments": {}}]`,

	"mistral-args": `[TOOL_CALLS]get_weather[ARGS]` + rome + `[TOOL_CALLS]note[ARGS]` + todo + `[TOOL_CALLS]ping[ARGS]{}`,
	"llama":        `{"name": "get_weather", "parameters": ` + rome + `}; {"name": "note", "parameters": ` + todo + `}; {"name": "ping", "parameters": {}}`,
	"lfm2":         `<|tool_call_start|>[get_weather(city="Rome", days=2, near=[None, True, "sea"]), note(text="a\"\nb", kind="é"), ping()]<|tool_call_end|>`,
	"qwen3-coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=near>\n[null, true, \"sea\"]\n</parameter>\n</function>\n</tool_call>\n" +
		"<tool_call>\n<function=note>\n<parameter=text>\na\"\nb\n</parameter>\n<parameter=kind>\né\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
}

// TestFormats: calls of every format are read, behind a thought and content, and wherever the
// answer is cut into pieces; one that ends early leaks no part of a call into the content.
func TestFormats(t *testing.T) {
	want := heard{"So.", "One moment.", []call{{"get_weather", rome}, {"note", todo}, {"ping", "{}"}}}
	for _, f := range formats {
		text, ok := texts[f.Name]
		if !ok {
			t.Errorf("%s has no text", f.Name)
		}
		want := want
		answer := "<think>\nSo.\n</think>\n\nOne moment.\n" + text
		if f.anchored {
			answer, want.Content = "<think>\nSo.\n</think>\n\n"+text, ""
		}
		c := configOf(t, f.Name, Config{Thoughts: May})
		for i := range len(answer) + 1 {
			if got := hear(t, c, false, answer[:i], answer[i:]); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, cut at %d:\n%+v, want\n%+v", f.Name, i, got, want)
			}
			got := hear(t, c, true, answer[:i])
			if !strings.HasPrefix(want.Content+"\n", got.Content) || !strings.HasPrefix(want.Reasoning+"\n", got.Reasoning) && !strings.HasPrefix("So.\n</think>", got.Reasoning) {
				t.Fatalf("%s, up to %d: %+v", f.Name, i, got)
			}
			for j, call := range got.Calls {
				if call.Name != want.Calls[j].Name || !strings.HasPrefix(want.Calls[j].Arguments, call.Arguments) {
					t.Fatalf("%s, up to %d: %+v", f.Name, i, got)
				}
			}
		}
		one := c.Parser()
		var got heard
		for i := range len(answer) {
			if err := got.add(one.Push(answer[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := got.add(one.End(false)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s, byte by byte: %+v, want %+v", f.Name, got, want)
		}
		if plain := hear(t, c, false, "a < b {\"nam\": [T <tool"); plain.Content != "a < b {\"nam\": [T <tool" {
			t.Errorf("%s: %+v is no text", f.Name, plain)
		}
	}
}

// TestOf: the template's text tells the format, the more telling sign first.
func TestOf(t *testing.T) {
	for name, text := range texts {
		if f := Of("{% if tools %}" + text + "{% endif %}"); f == nil || f.Name != name {
			t.Errorf("%s: %v", name, f)
		}
	}
	if f := Of("{{ messages[0].content }}"); f != nil {
		t.Errorf("%v for a template without tools", f)
	}
	if _, err := Named("none"); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Errorf("%v", err)
	}
}

// TestMark: special tokens have their byte in the grammar and in the text, and not in the outputs.
func TestMark(t *testing.T) {
	c := configOf(t, "lfm2", Config{Thoughts: May})
	if got := fmt.Sprint(c.Mark([]string{"<|im_end|>", "<|tool_call_start|>", "<think>", "</think>", ""})); got != "[<|tool_call_start|> </think> <think>]" {
		t.Fatalf("marked %s", got)
	}
	got := hear(t, c, false, "\xff<think>so</think>\xff</think>hm <|tool_call_start|>\xff<|tool_call_start|>[ping()]<|tool_call_end|>")
	if want := (heard{"so</think>", "hm <|tool_call_start|>", []call{{"ping", "{}"}}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := hear(t, c, false, "a \xff</think>b"); got.Content != "a </think>b" {
		t.Errorf("%+v", got)
	}
}

// FuzzParser: how a text is cut makes no difference.
func FuzzParser(f *testing.F) {
	var configs []*Config
	for i, format := range formats {
		configs = append(configs, configOf(f, format.Name, Config{}))
		f.Add(byte(i), byte(1), texts[format.Name], uint16(17))
		f.Add(byte(i), byte(2), "so</think>"+strings.Repeat(" ", 70)+texts[format.Name], uint16(80))
	}
	f.Fuzz(func(t *testing.T, format, thoughts byte, text string, at uint16) {
		c := *configs[int(format)%len(configs)]
		c.Thoughts = Thoughts(thoughts % 3)
		for _, cut := range []bool{false, true} {
			whole := hear(t, &c, cut, text)
			i := int(at) % (len(text) + 1)
			if got := hear(t, &c, cut, text[:i], text[i:]); !reflect.DeepEqual(got, whole) {
				t.Fatalf("%q cut at %d: %+v, whole %+v", text, i, got, whole)
			}
			if n := len(whole.Reasoning) + len(whole.Content); n > len(text) {
				t.Fatalf("%q became %d bytes", text, n)
			}
		}
	})
}

// bytesOnly is a vocabulary of bytes, with a special token.
func bytesOnly(t *testing.T, special string) *constrain.Vocabulary {
	v, err := constrain.NewVocabulary(257, func(id int) []byte {
		if id == 256 {
			return []byte(Special + special)
		}
		return []byte{byte(id)}
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// drawn draws a text of a grammar, which prefers likely while it may.
func drawn(t *testing.T, g *constrain.Grammar, v *constrain.Vocabulary, special string, likely string, r *rand.Rand) (text string, ended bool) {
	m := g.Match(v, nil)
	for range 4000 {
		mask := m.Mask()
		var ids []int
		for id := range 257 {
			if mask[id/32]>>(id%32)&1 == 1 {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return text, true
		}
		id := ids[r.IntN(len(ids))]
		if likely != "" && mask[likely[0]/32]>>(likely[0]%32)&1 == 1 && r.IntN(40) > 0 {
			id = int(likely[0])
		}
		if likely != "" {
			likely = likely[1:]
		}
		if id == 256 {
			text += Special + special
		} else {
			text += string([]byte{byte(id)})
		}
		if m.Accept(id) {
			return text, true
		}
	}
	return text, false
}

// TestGrammar: in texts that the grammar of required calls has, each call's arguments fulfil the
// schema of its tool.
func TestGrammar(t *testing.T) {
	validators := map[string]*jsonschema.Schema{}
	for _, tool := range []Tool{weather, note} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(tool.Parameters)))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("schema.json", doc); err != nil {
			t.Fatal(err)
		}
		if validators[tool.Name], err = c.Compile("schema.json"); err != nil {
			t.Fatal(err)
		}
	}
	draws := 14
	if goldens.Few(t) {
		draws = 5
	}
	for _, f := range formats {
		c := configOf(t, f.Name, Config{Least: 1, Thoughts: Begun})
		special := c.Mark([]string{f.trigger})
		g, err := c.Grammar(nil)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		v := bytesOnly(t, strings.Join(special, ""))
		r, calls := rand.New(rand.NewPCG(3, 4)), 0
		for range draws {
			text, ended := drawn(t, g, v, strings.Join(special, ""), "hm</think>\n"+strings.Repeat(c.marked(texts[f.Name]), 1), r)
			got := hear(t, c, !ended, text)
			if got.Content != "" {
				t.Errorf("%s: %q has content %q", f.Name, text, got.Content)
			}
			for i, call := range got.Calls {
				if !ended && i == len(got.Calls)-1 {
					continue
				}
				calls++
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(call.Arguments))
				if err == nil && validators[call.Name] != nil {
					err = validators[call.Name].Validate(value)
				}
				if err != nil {
					t.Errorf("%s: %q: %s(%s): %v", f.Name, text, call.Name, call.Arguments, err)
				}
			}
		}
		if calls < draws/3 {
			t.Errorf("%s: only %d calls came", f.Name, calls)
		}
	}
}

// TestManyTools: a hundred tools fit, of which one that cannot be held is an error if it is strict,
// and loose otherwise; too many combinations are no more work than for one tool.
func TestManyTools(t *testing.T) {
	var tools []Tool
	for i := range 100 {
		tools = append(tools, Tool{Name: fmt.Sprintf("tool_%d", i), Parameters: json.RawMessage(`{"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}, "mode": {"enum": ["a", "b", "c"]},
			"deep": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": ["string", "null"]}}, "required": ["x"]}}, "required": ["path"], "additionalProperties": false}`)})
	}
	for _, f := range formats[:4] { // all notations of arguments
		c := configOf(t, f.Name, Config{Tools: tools})
		if _, err := c.Grammar(nil); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		some := append([]Tool{}, tools[:3]...)
		some[1].Parameters = json.RawMessage(`{"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}`)
		for _, strict := range []bool{false, true} {
			some[1].Strict = strict
			c := configOf(t, f.Name, Config{Tools: append([]Tool{}, some...)})
			_, err := c.Grammar(nil)
			var wrong *SchemaError
			if strict != errors.As(err, &wrong) || strict && wrong.Tool != "tool_1" || !strict && (err != nil || !c.Tools[1].loose || c.Tools[0].loose) {
				t.Errorf("%s: strict %v: %v", f.Name, strict, err)
			}
		}
	}
}

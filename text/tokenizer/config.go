package tokenizer

import (
	"encoding/json"
	"fmt"
)

// configure reads a tokenizer_config.json: which tokens have a role, and whether bos and eos are
// put around a text. A role whose token the vocabulary lacks is unset. Where the file does not say
// whether to add bos or eos, the post-processor decides.
func (p *Pipeline) configure(data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	p.roles = map[string]int{}
	for _, role := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
		content, err := tokenContent(fields[role])
		if err != nil {
			return fmt.Errorf("%q: %w", role, err)
		}
		if id, ok := p.ID(content); ok && content != "" {
			p.roles[role] = id
		}
	}
	if err := p.putAround(fields, "add_bos_token", "bos_token", p.template.setBOS); err != nil {
		return err
	}
	return p.putAround(fields, "add_eos_token", "eos_token", p.template.setEOS)
}

// putAround calls set with the token of a role if an option says whether to add it.
func (p *Pipeline) putAround(fields map[string]json.RawMessage, option, role string, set func(id int, want bool)) error {
	var want *bool
	if raw := fields[option]; raw != nil {
		if err := json.Unmarshal(raw, &want); err != nil {
			return fmt.Errorf("%q: %w", option, err)
		}
	}
	if want == nil {
		return nil
	}
	id, ok := p.role(role)
	if *want && !ok {
		return fmt.Errorf("%q is true, but the vocabulary has no %q: correct the one or the other", option, role)
	}
	if ok {
		set(id, *want)
	}
	return nil
}

// tokenContent reads a token, which is null, a string or an object with its content.
func tokenContent(raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", nil
	}
	var content string
	if err := json.Unmarshal(raw, &content); err == nil {
		return content, nil
	}
	var object struct{ Content *string }
	if err := json.Unmarshal(raw, &object); err != nil {
		return "", err
	}
	if object.Content == nil {
		return "", fmt.Errorf("it is neither a string nor an object with %q", "content")
	}
	return *object.Content, nil
}

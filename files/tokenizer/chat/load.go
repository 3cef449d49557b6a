package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// ErrNone says that a model comes without a chat template.
var ErrNone = errors.New("the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)")

const maxConfig = 16 << 20 // bytes of a tokenizer_config.json

// tokenNames are the tokens of a tokenizer_config.json that templates see.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Load returns the template of a model's files and the tokens that it names:
// chat_template.jinja, else the one of tokenizer_config.json, of several that of the name default,
// else that of chat_template.json. Without one the error is ErrNone.
func Load(file func(name string) ([]byte, bool)) (*Template, map[string]string, error) {
	config := map[string]json.RawMessage{}
	if data, found := file("tokenizer_config.json"); found {
		if len(data) > maxConfig {
			return nil, nil, fmt.Errorf("tokenizer_config.json: %w: %d bytes", ErrTooMuch, len(data))
		}
		if err := decode(data, &config); err != nil {
			return nil, nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	tokens := map[string]string{}
	for _, name := range tokenNames {
		var text string
		var added struct{ Content string }
		if raw := config[name]; raw == nil || string(raw) == "null" {
			continue
		} else if json.Unmarshal(raw, &text) != nil {
			if err := json.Unmarshal(raw, &added); err != nil {
				return nil, nil, fmt.Errorf("tokenizer_config.json: %s: %w", name, err)
			}
			text = added.Content
		}
		tokens[name] = text
	}
	if source, found := file("chat_template.jinja"); found {
		t, err := Parse(string(source))
		return t, tokens, err
	}
	raw := config["chat_template"]
	if data, found := file("chat_template.json"); raw == nil && found && len(data) <= maxConfig {
		var other struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := decode(data, &other); err != nil {
			return nil, nil, fmt.Errorf("chat_template.json: %w", err)
		}
		raw = other.Template
	}
	source, err := chosen(raw)
	if err != nil {
		return nil, nil, err
	}
	t, err := Parse(source)
	return t, tokens, err
}

// decode reads JSON that Python wrote.
func decode(data []byte, into any) error {
	if err := filestart.Check(data); err != nil {
		return err
	}
	return json.Unmarshal(pythonjson.Quoted(data), into)
}

// chosen returns a template, or of several the one with the name default.
func chosen(raw json.RawMessage) (source string, err error) {
	if raw == nil || string(raw) == "null" {
		return "", ErrNone
	}
	if json.Unmarshal(raw, &source) == nil {
		return source, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return "", fmt.Errorf("chat_template: %w", err)
	}
	for _, one := range named {
		if one.Name == "default" {
			return one.Template, nil
		}
	}
	return "", fmt.Errorf("%w: chat_template has several templates, but none named default", ErrUnsupported)
}

package chat

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// ErrNone means that a model has no chat template.
var ErrNone = errors.New("the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)")

const maxConfig = 16 << 20 // bytes of a tokenizer_config.json

// tokenNames are the tokens of a tokenizer_config.json that templates see.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Load returns the template of a model's files, and the tokens that the files name. It uses
// chat_template.jinja, else the template of tokenizer_config.json, else the template of
// chat_template.json. If a file has several templates, it uses the template with the name default.
// Without a template it returns ErrNone.
func Load(file func(name string) ([]byte, bool)) (*Template, map[string]string, error) {
	config := map[string]json.RawMessage{}
	if data, found := file("tokenizer_config.json"); found {
		if len(data) > maxConfig {
			return nil, nil, fmt.Errorf("tokenizer_config.json: %w: %d bytes", errTooMuch, len(data))
		}
		if err := decode(data, &config); err != nil {
			return nil, nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	tokens, err := tokensOf(config)
	if err != nil {
		return nil, nil, err
	}
	if source, found := file("chat_template.jinja"); found {
		if err := filestart.Check(source); err != nil && !errors.Is(err, filestart.ErrMark) { // transformers keeps the mark
			return nil, nil, fmt.Errorf("%w: %w", errSyntax, err)
		}
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

// tokensOf returns the tokens that a tokenizer_config.json names.
func tokensOf(config map[string]json.RawMessage) (map[string]string, error) {
	tokens := map[string]string{}
	for _, name := range tokenNames {
		raw := config[name]
		if raw == nil || string(raw) == "null" {
			continue
		}
		var text string
		var added struct{ Content *string }
		if json.Unmarshal(raw, &text) != nil {
			if json.Unmarshal(raw, &added) != nil || added.Content == nil {
				return nil, fmt.Errorf("tokenizer_config.json: %w: %s is %.40s, want a text, or an object with content", errShape, name, raw)
			}
			text = *added.Content
		}
		tokens[name] = text
	}
	return tokens, nil
}

// errShape means that a file has a value of an unexpected type.
var errShape = errors.New("wrong kind of value")

// decode reads a JSON object that Python wrote.
func decode(data []byte, into any) error {
	if err := filestart.Check(data); err != nil {
		return err
	}
	err := json.Unmarshal(pythonjson.Quoted(data), into)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
		return fmt.Errorf("%w: want a JSON object", errShape)
	}
	return err
}

// chosen returns a template or, of several templates, the template with the name default.
func chosen(raw json.RawMessage) (source string, err error) {
	if raw == nil || string(raw) == "null" {
		return "", ErrNone
	}
	if json.Unmarshal(raw, &source) == nil {
		return source, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) != nil {
		return "", fmt.Errorf("%w: chat_template is %.40s, want a text, or a list of objects with name and template", errShape, raw)
	}
	for _, one := range named {
		if one.Name == "default" {
			return one.Template, nil
		}
	}
	return "", fmt.Errorf("%w: chat_template has several templates, but none named default", errUnsupported)
}

package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// messages reads the list of messages under a key of a conversation.
func (t talks) messages(raw json.RawMessage, key string) ([]chat.Message, error) {
	var list []object
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errShape, key, cause(err))
	}
	messages := []chat.Message{}
	for i, o := range list {
		m, err := t.message(o, key)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

var errMessage = errors.New("want a role, and a text or tool calls")

// message reads a message with role and content, or with from and value.
func (t talks) message(o object, of string) (m chat.Message, err error) {
	role, found, err := o.either("role", "from")
	if err != nil {
		return m, err
	}
	if !found {
		return m, errMessage
	}
	null := o["content"] != nil || o["value"] != nil
	text, found, err := o.either("content", "value")
	if err != nil {
		return m, err
	}
	m.Role, m.Content = role, text
	switch {
	case found:
		m.Kind = chat.TextContent
	case null:
		m.Kind = chat.NullContent
	default:
		m.Kind = chat.NoContent
	}
	if other, known := roles[role]; known {
		m.Role = other
	}
	if !slices.Contains(ownRoles, m.Role) {
		if err := t.note(fmt.Sprintf("%s of the role %s", of, m.Role)); err != nil {
			return m, err
		}
	}
	if role == "function_call" {
		m.Content = ""
		m.Calls, err = calls(text)
	} else {
		m.Calls = o.keep("tool_calls")
	}
	if err != nil {
		return m, err
	}
	if !found && isEmpty(m.Calls) {
		return m, errMessage
	}
	if m.CallID, err = o.textOrNull("tool_call_id"); err != nil {
		return m, err
	}
	if m.Name, err = o.textOrNull("name"); err != nil {
		return m, err
	}
	if err := t.choose(o, &m, of); err != nil {
		return m, err
	}
	return m, t.rest(o, of+".")
}

// either takes the text of one of two keys. A message with both keys is an error.
func (o object) either(first, second string) (text string, found bool, err error) {
	if text, found, err = o.text(first); err != nil {
		return "", false, err
	}
	other, both, err := o.text(second)
	switch {
	case err != nil:
		return "", false, err
	case found && both:
		return "", false, fmt.Errorf("both %s and %s are set, want one", first, second)
	case both:
		return other, true, nil
	}
	return text, found, nil
}

// calls reads LlamaFactory's tool calls: a text with an object of name and arguments, or with a
// list of such objects.
func calls(text string) (json.RawMessage, error) {
	type call struct {
		Type     string          `json:"type"`
		Function json.RawMessage `json:"function"`
	}
	if err := checkCharacters([]byte(text)); err != nil {
		return nil, fmt.Errorf("function_call: %w", err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		all = []json.RawMessage{json.RawMessage(text)}
	}
	var made []call
	for _, function := range all {
		var shape struct {
			Name      *string         `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if json.Unmarshal(function, &shape) != nil || shape.Name == nil || shape.Arguments == nil {
			return nil, fmt.Errorf("function_call is %.40q, want JSON with name and arguments", text)
		}
		made = append(made, call{"function", function})
	}
	return json.Marshal(made)
}

// choice is a key of a message that selects whether the message is learned.
type choice struct {
	key   string
	masks bool // true means not learned
}

var choices = []choice{
	{"weight", false},    // OpenAI, Mistral, Together
	{"train", false},     // Axolotl
	{"loss", false},      // ms-swift
	{"loss_mask", false}, // of tokens in other programs; here of a message
	{"mask", true},
}

// learned returns the choice of a value: true or 1, false or 0. Other values are unknown.
func (c choice) learned(raw json.RawMessage) (learned, known bool) {
	var number float64
	switch text := string(raw); {
	case text == "true":
		return !c.masks, true
	case text == "false":
		return c.masks, true
	case raw == nil || text == "null" || json.Unmarshal(raw, &number) != nil || number != 0 && number != 1:
		return false, false
	}
	return (number == 1) != c.masks, true
}

// choose reads whether a message is learned. Only answers are learned: a request to learn a
// different message is recorded as an unread key.
func (t talks) choose(o object, m *chat.Message, of string) error {
	by := ""
	for _, choice := range choices {
		raw := o.take(choice.key)
		if raw == nil {
			continue
		}
		learned, known := choice.learned(raw)
		if !known {
			yes, no := "true or 1", "false or 0"
			if choice.masks {
				yes, no = no, yes
			}
			return fmt.Errorf("%s is %.40s, want %s to learn the message, or %s", choice.key, raw, yes, no)
		}
		switch {
		case by != "" && learned == m.Masked:
			return fmt.Errorf("%s and %s contradict each other; remove one of them", by, choice.key)
		case m.Role != roleAssistant && learned && !choice.masks:
			if err := t.note(fmt.Sprintf("%s.%s of the role %s", of, choice.key, m.Role)); err != nil {
				return err
			}
		}
		by, m.Masked = choice.key, !learned
	}
	return nil
}

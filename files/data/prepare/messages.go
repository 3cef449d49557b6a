package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// shareGPT are the roles that conversations with from and value call otherwise.
var shareGPT = map[string]string{"gpt": "assistant", "human": "user"}

// conversation reads one: an object with messages of role and content, and tools, or with conversations of
// from and value. An empty line is none.
func conversation(line []byte) (in chat.Input, err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return in, nil
	}
	var object struct {
		Messages []struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
			Calls   json.RawMessage `json:"tool_calls"`
			CallID  string          `json:"tool_call_id"`
			Name    string          `json:"name"`
		} `json:"messages"`
		Tools         json.RawMessage `json:"tools"`
		Conversations []struct {
			From  *string         `json:"from"`
			Value json.RawMessage `json:"value"`
		} `json:"conversations"`
	}
	if err := json.Unmarshal(line, &object); err != nil {
		return in, fmt.Errorf("want an object with messages (role, content) or conversations (from, value): %w", err)
	}
	if (object.Messages == nil) == (object.Conversations == nil) {
		return in, errors.New("want an object with messages (role, content) or conversations (from, value), and not with both")
	}
	in.Messages, in.Tools = []chat.Message{}, object.Tools
	add := func(role *string, content json.RawMessage, m chat.Message) error {
		var text *string
		m.Kind = chat.NoContent
		if len(content) > 0 {
			m.Kind, err = chat.NullContent, json.Unmarshal(content, &text)
		}
		if role == nil || err != nil || text == nil && isEmpty(m.Calls) {
			return fmt.Errorf("message %d: want a role, and a text or calls of tools; parts of messages are not read", len(in.Messages))
		}
		m.Role = *role
		if other, known := shareGPT[m.Role]; known {
			m.Role = other
		}
		if text != nil {
			m.Content, m.Kind = *text, chat.TextContent
		}
		in.Messages = append(in.Messages, m)
		return nil
	}
	for _, m := range object.Messages {
		if err := add(m.Role, m.Content, chat.Message{Calls: m.Calls, CallID: m.CallID, Name: m.Name}); err != nil {
			return in, err
		}
	}
	for _, m := range object.Conversations {
		if err := add(m.From, m.Value, chat.Message{}); err != nil {
			return in, err
		}
	}
	return in, nil
}

// isEmpty reports whether a list is absent, null or without items.
func isEmpty(raw json.RawMessage) bool {
	var items []json.RawMessage
	return len(raw) == 0 || json.Unmarshal(raw, &items) == nil && len(items) == 0
}

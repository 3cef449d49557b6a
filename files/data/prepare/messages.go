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

// messagesOf reads a conversation: an object with messages of role and content, or with conversations of
// from and value. An empty line is none.
func messagesOf(line []byte) ([]chat.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var object struct {
		Messages []struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Conversations []struct {
			From  *string         `json:"from"`
			Value json.RawMessage `json:"value"`
		} `json:"conversations"`
	}
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("want an object with messages (role, content) or conversations (from, value): %w", err)
	}
	if (object.Messages == nil) == (object.Conversations == nil) {
		return nil, errors.New("want an object with messages (role, content) or conversations (from, value), and not with both")
	}
	messages := []chat.Message{}
	add := func(role *string, content json.RawMessage) error {
		var text *string
		if err := json.Unmarshal(content, &text); role == nil || err != nil || text == nil {
			return fmt.Errorf("message %d: want a role and a text, tools and parts of messages are not read", len(messages))
		}
		name := *role
		if other, known := shareGPT[name]; known {
			name = other
		}
		messages = append(messages, chat.Message{Role: name, Content: *text})
		return nil
	}
	for _, m := range object.Messages {
		if err := add(m.Role, m.Content); err != nil {
			return nil, err
		}
	}
	for _, m := range object.Conversations {
		if err := add(m.From, m.Value); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

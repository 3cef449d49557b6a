package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/base/strictjson"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
)

// roles are alternative names of roles, from ShareGPT, LlamaFactory and NeMo.
var roles = map[string]string{
	"gpt": roleAssistant, "human": roleUser, "observation": "tool", "function_call": roleAssistant,
	"User": roleUser, "Assistant": roleAssistant, "System": roleSystem,
}

// ownRoles are the role names that templates know. Messages of other roles are not learned, and are
// recorded in Unread.
var ownRoles = []string{roleSystem, roleUser, roleAssistant, "developer", "tool", "function", "ipython"}

var errShape = errors.New("want an object with exactly one of: messages (role, content), conversations (from, value), or instruction and output")

// object is a JSON object whose keys are taken one by one. The keys that remain are unread.
type object map[string]json.RawMessage

// take removes a key. It returns nil if the key is missing or null.
func (o object) take(key string) json.RawMessage {
	raw := o[key]
	delete(o, key)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// keep removes a key. It returns nil if the key is missing, but not if it is null, because
// templates distinguish the two.
func (o object) keep(key string) json.RawMessage {
	raw := o[key]
	delete(o, key)
	return raw
}

// text takes a key with a text. found is false if the key is missing or null.
func (o object) text(key string) (text string, found bool, err error) {
	raw := o.take(key)
	if raw == nil {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", false, fmt.Errorf("%s is %.40s, want a text; lists of message parts are not supported", key, raw)
	}
	return text, true, nil
}

// textOrNull takes a key with a text or null, as JSON. It returns nil if the key is missing.
func (o object) textOrNull(key string) (json.RawMessage, error) {
	raw := o.keep(key)
	var text *string
	if raw != nil && json.Unmarshal(raw, &text) != nil {
		return nil, fmt.Errorf("%s is %.40s, want a text or null", key, raw)
	}
	return raw, nil
}

// maxUnread bounds the different keys in Unread.
const maxUnread = 64

// Unread counts the keys of conversations that were not read. Keys of messages begin with the key
// of their list, as in messages.name.
type Unread map[string]int64

// String lists the keys with their counts, in the order of the keys.
func (u Unread) String() string {
	if len(u) == 0 {
		return "none"
	}
	var parts []string
	for key, count := range u {
		parts = append(parts, fmt.Sprintf("%.80q %d times", key, count))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// talks reads conversations.
type talks struct {
	strict bool // refuse unread keys
	unread Unread
}

// note counts an unread key, or refuses it.
func (t talks) note(key string) error {
	if t.strict {
		return fmt.Errorf("unknown key %.80q; remove it, or omit --strict", key)
	}
	t.count(key)
	return nil
}

// count counts an unread key.
func (t talks) count(key string) {
	if _, known := t.unread[key]; !known && len(t.unread) >= maxUnread {
		key = "(other keys)"
	}
	t.unread[key]++
}

// rest records the keys of an object that were not taken, except keys with the value null.
func (t talks) rest(o object, of string) error {
	var keys []string
	for key, value := range o {
		if string(value) != "null" {
			keys = append(keys, of+key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := t.note(key); err != nil {
			return err
		}
	}
	return nil
}

// conversation reads a conversation from a line. messages is nil if the line is empty.
func (t talks) conversation(line []byte) (in chat.Input, err error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return in, nil
	}
	if err := checkCharacters(line); err != nil {
		return in, err
	}
	var o object
	if err := json.Unmarshal(pythonjson.Standard(line), &o); err != nil {
		return in, fmt.Errorf("%w: %w", errShape, cause(err))
	}
	messages, conversations := o.take("messages"), o.take("conversations")
	_, alpaca := o["instruction"]
	alpaca = alpaca && messages == nil && conversations == nil
	switch {
	case alpaca:
		in.Messages, err = o.alpaca()
	case (messages == nil) == (conversations == nil):
		return in, errShape
	case messages != nil:
		in.Messages, err = t.messages(messages, "messages")
	default:
		in.Messages, err = t.messages(conversations, "conversations")
	}
	if err != nil {
		return in, err
	}
	if in.Tools, err = tools(o.keep("tools")); err != nil {
		return in, err
	}
	o.maskAll(in.Messages)
	if err := t.mask(o, in.Messages); err != nil {
		return in, err
	}
	if in.Messages, err = o.system(in.Messages); err != nil {
		return in, err
	}
	return in, t.rest(o, "")
}

// errCharacters means that JSON holds bytes or escapes that do not encode a character. Go reads U+FFFD in their place.
var errCharacters = errors.New("damaged text; convert it to UTF-8, as with iconv -f LATIN1 -t UTF-8, or repair it")

// checkCharacters refuses JSON with bytes that are not UTF-8, and with halves of surrogate pairs.
func checkCharacters(text []byte) error {
	if err := strictjson.CheckEscapes(text); err != nil {
		return fmt.Errorf("%w: %w", errCharacters, err)
	}
	return nil
}

// alpaca reads an instruction with its answer.
func (o object) alpaca() ([]chat.Message, error) {
	var values [3]string
	for i, key := range []string{"instruction", "input", "output"} {
		text, found, err := o.text(key)
		if err != nil {
			return nil, err
		}
		if !found && key != "input" {
			return nil, fmt.Errorf("%s is missing, want a text", key)
		}
		values[i] = text
	}
	var history [][2]string
	if raw := o.take("history"); raw != nil {
		var err error
		if history, err = pairs(raw); err != nil {
			return nil, err
		}
	}
	question := values[0]
	if values[0] != "" && values[1] != "" {
		question += "\n"
	}
	var messages []chat.Message
	for _, pair := range append(history, [2]string{question + values[1], values[2]}) {
		messages = append(messages, chat.Message{Role: roleUser, Content: pair[0]}, chat.Message{Role: roleAssistant, Content: pair[1]})
	}
	return messages, nil
}

// system puts a system message that is outside of the messages in front of them.
func (o object) system(messages []chat.Message) ([]chat.Message, error) {
	text, _, err := o.text(roleSystem)
	if err != nil || text == "" {
		return messages, err
	}
	if len(messages) > 0 && messages[0].Role == roleSystem {
		if messages[0].Content != text {
			return nil, errors.New("the key system and the first message (role system) differ; remove one of them")
		}
		return messages, nil
	}
	return append([]chat.Message{{Role: roleSystem, Content: text}}, messages...), nil
}

// maskAll masks all messages if a key of the conversation disables learning. Other values, such as
// a weight for sampling, remain and are recorded as unread.
func (o object) maskAll(messages []chat.Message) {
	for _, choice := range choices {
		if learned, known := choice.learned(o[choice.key]); known && choice.key != "mask" {
			delete(o, choice.key)
			for i := range messages {
				messages[i].Masked = messages[i].Masked || !learned
			}
		}
	}
}

// mask masks the messages of the role in NeMo's key mask. Like NeMo, it refuses a role without
// messages.
func (t talks) mask(o object, messages []chat.Message) error {
	raw := o.take("mask")
	if raw == nil {
		return nil
	}
	var role string
	if err := json.Unmarshal(raw, &role); err != nil || role == "" {
		return fmt.Errorf("mask is %.40s, want a role name (as in NeMo); within a message, true or false", raw)
	}
	named, found := role, false
	if other, known := roles[role]; known {
		role = other
	}
	for i := range messages {
		if messages[i].Role == role {
			messages[i].Masked, found = true, true
		}
	}
	switch {
	case found:
	case t.strict:
		return fmt.Errorf("mask is %.40s, but no message has this role, so nothing is masked; correct mask, or omit --strict", raw)
	default:
		t.count(fmt.Sprintf("mask of the role %.40s, which no message has", named))
	}
	return nil
}

// tools returns a list of tools, null, or nil if there are no tools. LlamaFactory writes the list
// as a text of JSON.
func tools(raw json.RawMessage) (json.RawMessage, error) {
	var text string
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if err := checkCharacters([]byte(text)); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if raw = nil; strings.TrimSpace(text) != "" {
			raw = json.RawMessage(text)
		}
	}
	if raw != nil && !json.Valid(raw) {
		return nil, fmt.Errorf("tools is %.40q, want a list, or a text with a list as JSON", text)
	}
	return raw, nil
}

// isEmpty reports whether a list is absent, null or without items.
func isEmpty(raw json.RawMessage) bool {
	var items []json.RawMessage
	return len(raw) == 0 || json.Unmarshal(raw, &items) == nil && len(items) == 0
}

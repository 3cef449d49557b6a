package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// ErrControl means that a message would be read as a part of the text around messages.
var ErrControl = errors.New("control tokens in a message")

// ErrToolControl is an ErrControl of [Input].Tools.
var ErrToolControl = fmt.Errorf("%w: a tool", ErrControl)

// errNoControl means that a tokenizer does not recognize control tokens in the text that a template
// writes around messages.
var errNoControl = errors.New("a " + tokenizer.PieceFile + " does not recognize control tokens in text, so a chat template needs a " + tokenizer.JSONFile)

// Encode returns the ids of a conversation. It ensures that no message adds control tokens: the
// control tokens must be the same, in number and order, as in the same conversation with a plain
// word in place of each non-empty message. The strings of tools, and of calls of tools, must not
// contain control tokens. Control tokens are the tokenizer's special tokens, the added tokens that
// the template writes around messages, and the ids in ends, which end a text. A conversation with
// different control tokens is an error that wraps ErrControl. The remaining errors are the errors
// of Render and of the tokenizer.
func (t *Template) Encode(coder *tokenizer.Tokenizer, in Input, ends []int32) ([]int32, error) {
	ids, err := t.ids(coder, in)
	if err != nil {
		return nil, err
	}
	plain := in
	plain.Messages = slices.Clone(in.Messages)
	for i := range plain.Messages {
		if plain.Messages[i].Content != "" {
			plain.Messages[i].Content = "word"
		}
	}
	frame, err := t.ids(coder, plain)
	if err != nil {
		return nil, fmt.Errorf("with each message replaced by a plain word: %w", err)
	}
	control := func(id int32) bool {
		added, special := coder.Added(id)
		return special || slices.Contains(ends, id) || added && slices.Contains(frame, id)
	}
	if err := in.checkTools(coder, control); err != nil {
		return nil, err
	}
	if slices.Equal(only(ids, control), only(frame, control)) {
		return ids, nil
	}
	for i, message := range in.Messages {
		own, err := coder.Encode([]byte(message.Content))
		if err != nil {
			return nil, err
		}
		if found := only(own, control); len(found) > 0 {
			text, err := coder.Decode(found[:1])
			return nil, errors.Join(fmt.Errorf("%w: message %d (role %s) contains %q", ErrControl, i, message.Role, text), err)
		}
	}
	return nil, fmt.Errorf("%w: the template produces different control tokens from these messages than from plain words", ErrControl)
}

// checkTools refuses control tokens in tools, in calls of tools, and in the names and ids of calls.
func (in Input) checkTools(coder *tokenizer.Tokenizer, control func(id int32) bool) error {
	check := func(text string, found error) error {
		ids, err := coder.Encode([]byte(text))
		if err == nil && slices.ContainsFunc(ids, control) {
			err = fmt.Errorf("%w contains %.100q", found, text)
		}
		return err
	}
	if err := eachString(in.Tools, func(text string) error { return check(text, ErrToolControl) }); err != nil {
		return err
	}
	for i, m := range in.Messages {
		inCall := fmt.Errorf("%w: message %d: a tool call", ErrControl, i)
		checkCall := func(text string) error { return check(text, inCall) }
		if err := errors.Join(eachString(m.Calls, checkCall), eachString(m.CallID, checkCall), eachString(m.Name, checkCall)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Template) ids(coder *tokenizer.Tokenizer, in Input) ([]int32, error) {
	if !coder.FindsControl() {
		return nil, errNoControl
	}
	text, err := t.Render(in)
	if err != nil {
		return nil, err
	}
	return coder.Encode([]byte(text)) // the template has the tokens that begin a text
}

func only(ids []int32, is func(int32) bool) (kept []int32) {
	for _, id := range ids {
		if is(id) {
			kept = append(kept, id)
		}
	}
	return kept
}

package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// ErrTurns means that the assistant's tokens in a conversation cannot be determined.
var ErrTurns = errors.New("cannot determine which tokens are the assistant's")

// assistant is the role whose messages are learned.
const assistant = "assistant"

// EncodeForTraining returns the ids of a conversation, and for each id whether it is learned. A
// template selects the learned text by {% generation %}, and the result is the same as from
// transformers' apply_chat_template. If a template marks nothing, the learned ids are the ids that
// a message of the assistant adds to the ids of the messages before it, without the ids that begin
// an answer. Masked messages are not learned. The error wraps ErrTurns if a token is only partly
// learned, or if the template changes a message when more messages follow. Encode documents the
// remaining errors.
func (t *Template) EncodeForTraining(coder *tokenizer.Tokenizer, in Input) (ids []int32, learned []bool, err error) {
	if in.AddGenerationPrompt = false; len(in.Messages) == 0 {
		return nil, nil, fmt.Errorf("%w: no messages", ErrTurns)
	}
	if ids, err = t.Encode(coder, in, nil); err != nil {
		return nil, nil, err
	}
	learned = make([]bool, len(ids))
	if t.marks {
		return ids, learned, t.learnMarked(coder, in, ids, learned)
	}
	return ids, learned, t.learnAdded(coder, in, ids, learned)
}

// learnMarked marks the tokens of the text that the template marks.
func (t *Template) learnMarked(coder *tokenizer.Tokenizer, in Input, ids []int32, learned []bool) error {
	text, marked, err := t.render(in)
	if err != nil {
		return err
	}
	if marked, err = t.unmasked(in, marked); err != nil {
		return err
	}
	for _, of := range marked {
		var ends [2]int
		for i, at := range []int{of.start, of.end} {
			before, err := coder.Encode([]byte(text[:at]))
			if err != nil {
				return err
			}
			if !starts(ids, before) {
				return fmt.Errorf("%w: at byte %d, a token crosses the boundary of a text that the template marks", ErrTurns, at)
			}
			ends[i] = len(before)
		}
		mark(learned[ends[0]:ends[1]])
	}
	return nil
}

// unmasked returns the spans of the messages that are not masked. Each message adds its spans to
// the spans of the messages before it.
func (t *Template) unmasked(in Input, marked []span) (kept []span, err error) {
	messages := in.Messages
	if !slices.ContainsFunc(messages, func(m Message) bool { return m.Masked }) {
		return marked, nil
	}
	before := 0
	for i, message := range messages {
		in.Messages = messages[:i+1]
		_, part, err := t.render(in)
		if err != nil {
			return nil, fmt.Errorf("%w: cannot find the text that message %d adds: %w", ErrTurns, i, err)
		}
		if len(part) < before || len(part) > len(marked) || !slices.Equal(part, marked[:len(part)]) {
			return nil, fmt.Errorf("%w: the template marks message %d, of the role %s, differently when more messages follow", ErrTurns, i, message.Role)
		}
		if !message.Masked {
			kept = append(kept, part[before:]...)
		}
		before = len(part)
	}
	return kept, nil
}

// learnAdded marks the tokens that messages of the assistant add.
func (t *Template) learnAdded(coder *tokenizer.Tokenizer, in Input, ids []int32, learned []bool) (err error) {
	messages, before := in.Messages, 0
	if messages[0].Role == assistant {
		if before, err = t.firstAnswer(coder, in, ids); err != nil {
			return err
		}
	}
	for i, message := range messages {
		end, next := len(ids), len(ids) // of the message, and of the header of a following answer
		if i+1 < len(messages) {
			in.Messages = messages[:i+1]
			if end, next, err = t.ends(coder, in, ids, messages[i+1].Role == assistant); err != nil {
				return err
			}
		}
		if end < before {
			return fmt.Errorf("%w: the template writes message %d (role %s) differently if more messages follow; mark the assistant's text with {%% generation %%} in the template", ErrTurns, i, message.Role)
		}
		if message.Role == assistant && !message.Masked {
			mark(learned[before:end])
		}
		before = next
	}
	return nil
}

// ends returns two numbers of ids for the first messages of a conversation: end without the ids
// that begin an answer, and next with these ids if an answer follows. Both are -1 if the
// conversation does not begin with the first messages.
func (t *Template) ends(coder *tokenizer.Tokenizer, in Input, ids []int32, answered bool) (end, next int, err error) {
	last := in.Messages[len(in.Messages)-1]
	in.AddGenerationPrompt = answered
	part, err := t.ids(coder, in)
	if err != nil || !starts(ids, part) {
		return -1, -1, err
	}
	if end, next = len(part), len(part); !answered || last.Role != assistant {
		return end, next, nil
	}
	in.AddGenerationPrompt = false
	if part, err = t.ids(coder, in); err != nil || !starts(ids, part) {
		return -1, -1, err
	}
	return len(part), next, nil
}

// firstAnswer returns the number of ids before the text of an answer that begins a conversation.
// Because no message precedes that answer, a conversation with one message is used to find the ids
// that begin an answer.
func (t *Template) firstAnswer(coder *tokenizer.Tokenizer, in Input, ids []int32) (int, error) {
	in.Messages = []Message{{Role: "user", Content: "word"}}
	question, err := t.ids(coder, in)
	if err != nil {
		return 0, fmt.Errorf("%w: cannot find the start of the first answer: %w", ErrTurns, err)
	}
	in.AddGenerationPrompt = true
	prompt, err := t.ids(coder, in)
	if err != nil {
		return 0, fmt.Errorf("%w: cannot find the start of the first answer: %w", ErrTurns, err)
	}
	if !starts(prompt, question) {
		return 0, fmt.Errorf("%w: cannot find the start of the first answer: the template writes a question differently if an answer follows", ErrTurns)
	}
	header := prompt[len(question):]
	for at := range ids {
		if starts(ids[at:], header) {
			return at + len(header), nil
		}
	}
	return 0, fmt.Errorf("%w: the template starts the first answer differently from later answers", ErrTurns)
}

func starts(all, first []int32) bool {
	return len(first) <= len(all) && slices.Equal(all[:len(first)], first)
}

func mark(learned []bool) {
	for i := range learned {
		learned[i] = true
	}
}

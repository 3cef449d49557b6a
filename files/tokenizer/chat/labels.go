package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// ErrTurns says that it cannot be told which tokens of a conversation are the assistant's.
var ErrTurns = errors.New("cannot tell the assistant's tokens")

// assistant is the role whose messages are learned.
const assistant = "assistant"

// EncodeForTraining returns the ids of a conversation and for each whether it is the assistant's. That is what
// the template marks by {% generation %}, as the mask of transformers' apply_chat_template says; of a template
// that marks nothing, what a message of the assistant adds to the ids of the messages before it, without
// what the template begins an answer with. Where a token is of two kinds, or a message is written
// otherwise when others follow, the error wraps ErrTurns; the remaining errors are those of Encode.
func (t *Template) EncodeForTraining(coder *tokenizer.Tokenizer, in Input) (ids []int32, learned []bool, err error) {
	if in.AddGenerationPrompt = false; len(in.Messages) == 0 {
		return nil, nil, fmt.Errorf("%w: there are no messages", ErrTurns)
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

// learnMarked marks the tokens of what the template marks.
func (t *Template) learnMarked(coder *tokenizer.Tokenizer, in Input, ids []int32, learned []bool) error {
	text, marked, err := t.render(in)
	if err != nil {
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
				return fmt.Errorf("%w: a token reaches over the border of what the template marks, at byte %d", ErrTurns, at)
			}
			ends[i] = len(before)
		}
		mark(learned[ends[0]:ends[1]])
	}
	return nil
}

// learnAdded marks what messages of the assistant add.
func (t *Template) learnAdded(coder *tokenizer.Tokenizer, in Input, ids []int32, learned []bool) error {
	messages, before := in.Messages, 0
	for i, message := range messages {
		part := ids
		if i+1 < len(messages) {
			var err error
			in.Messages, in.AddGenerationPrompt = messages[:i+1], messages[i+1].Role == assistant
			if part, err = t.ids(coder, in); err != nil {
				return err
			}
		}
		if len(part) < before || !starts(ids, part) {
			return fmt.Errorf("%w: the template writes message %d, of the role %s, otherwise when others follow; it would have to mark the assistant's by {%% generation %%}", ErrTurns, i, message.Role)
		}
		if message.Role == assistant {
			mark(learned[before:len(part)])
		}
		before = len(part)
	}
	return nil
}

func starts(all, first []int32) bool {
	return len(first) <= len(all) && slices.Equal(all[:len(first)], first)
}

func mark(learned []bool) {
	for i := range learned {
		learned[i] = true
	}
}

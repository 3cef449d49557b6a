package openai

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"strings"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// Values of finish_reason.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishCalls  = "tool_calls"
)

// errStop ends a text at a stop string.
var errStop = errors.New("the text contains a string of stop")

// choice is the model's completion of one prompt. It is not safe for concurrent use.
type choice struct {
	answer *answer
	index  int
	ids    []int32 // of the prompt
	limit  int     // maximum number of tokens
	count  int     // number of generated tokens
	finish string
	text   strings.Builder // unused while streaming
	begun  bool            // a part of the stream was sent
	stop   stopper
	calls  *callReader // nil: tool calls remain text
	called []call      // calls in the text, set at its end
	scores *scores     // nil: no log-probabilities were requested
}

// write generates the text and sends it.
func (c *choice) write(ctx context.Context) *problem {
	a := c.answer
	stream, err := a.model.Tokenizer.NewStream(c.ids)
	if err != nil {
		return failed(err)
	}
	c.stop = stopper{stops: a.request.stops}
	o := Options{MaxTokens: c.limit, Temperature: a.request.temperature, TopP: a.request.topP, Seed: mathrand.Uint64()}
	if a.request.seed != nil {
		o.Seed = uint64(*a.request.seed)
	}
	if a.request.scored {
		c.scores = newScores(a.model.Tokenizer, a.request.top, c.ids)
		o.Observe = c.scores.observe
	}
	err = a.model.Tokens(ctx, c.ids, o, func(id int32) error { return c.take(stream, id) })
	c.finish = finishStop
	switch {
	case errors.Is(err, errStop):
		return c.end()
	case err == nil && c.count == c.limit, err != nil && c.count > 0 && errors.Is(context.Cause(ctx), errTime):
		c.finish = finishLength
	case err != nil && ctx.Err() != nil:
		return early(ctx)
	case err != nil:
		return failed(err)
	}
	if err := c.addRest(stream); err != nil {
		return gone
	}
	return c.end()
}

// take adds the text that a token completes.
func (c *choice) take(stream *tokenizer.Stream, id int32) error {
	c.count++
	bytes, err := stream.Next(id)
	if err != nil {
		return err
	}
	piece := valid(bytes)
	if c.scores != nil {
		if err := c.scores.add(id, piece); err != nil {
			return err
		}
	}
	if c.calls != nil {
		piece += c.calls.form.writtenBy(id)
	}
	text, found := c.stop.next(piece)
	if err := c.add(text); err != nil {
		return err
	}
	if found {
		return errStop
	}
	return nil
}

// addRest adds the text that was held back.
func (c *choice) addRest(stream *tokenizer.Stream) error {
	piece, err := stream.Flush()
	if err != nil {
		return err
	}
	text, found := c.stop.next(valid(piece))
	if found {
		c.finish = finishStop
	}
	return c.add(text + c.stop.rest())
}

// valid returns a text with U+FFFD instead of each byte that is not part of a character.
func valid(piece []byte) string { return string([]rune(string(piece))) }

// add adds a piece of the text, without the calls in it.
func (c *choice) add(text string) error {
	if c.calls != nil {
		text = c.calls.next(text)
	}
	return c.show(text)
}

// show adds a piece of the text to the answer.
func (c *choice) show(text string) error {
	if !c.answer.request.stream {
		c.text.WriteString(text)
		return nil
	}
	if text == "" {
		return nil
	}
	return c.event(c.part(text), nil)
}

// part returns the fields of a choice for a piece of a stream.
func (c *choice) part(text string) map[string]any {
	if !c.answer.inChat {
		return map[string]any{"text": text}
	}
	return c.delta(map[string]any{"content": text})
}

// delta returns the fields of a choice for a piece of a streamed message. The first piece contains the
// role.
func (c *choice) delta(fields map[string]any) map[string]any {
	if !c.begun {
		fields["role"] = "assistant"
	}
	return map[string]any{"delta": fields}
}

// event sends a piece of a stream.
func (c *choice) event(part map[string]any, finish any) error {
	err := c.answer.event(c.answer.object(c.completed(part, finish)))
	c.begun = true
	return err
}

// completed sets the fields that each choice has.
func (c *choice) completed(part map[string]any, finish any) map[string]any {
	part["index"], part["finish_reason"], part["logprobs"] = c.index, finish, nil
	if c.scores != nil {
		part["logprobs"] = c.scores.shown(c.answer.inChat)
	}
	return part
}

// end ends the text. In a stream, it also sends the last piece.
func (c *choice) end() *problem {
	if c.calls != nil {
		var rest string
		if rest, c.called = c.calls.end(c.answer.request.oneCall); len(c.called) > 0 && c.finish == finishStop {
			c.finish = finishCalls
		}
		if c.show(rest) != nil {
			return gone
		}
	}
	if !c.answer.request.stream {
		return nil
	}
	for i, call := range c.called {
		object := call.object()
		object["index"] = i
		if c.event(c.delta(map[string]any{"tool_calls": []any{object}}), nil) != nil {
			return gone
		}
	}
	last := c.part("")
	if c.answer.inChat && c.begun {
		last["delta"] = map[string]any{}
	}
	if c.event(last, c.finish) != nil {
		return gone
	}
	return nil
}

// whole is the complete choice.
func (c *choice) whole() map[string]any {
	if !c.answer.inChat {
		return c.completed(map[string]any{"text": c.text.String()}, c.finish)
	}
	message := map[string]any{"role": "assistant", "content": c.text.String(), "refusal": nil}
	if len(c.called) > 0 {
		var calls []any
		for _, call := range c.called {
			calls = append(calls, call.object())
		}
		if message["tool_calls"] = calls; c.text.Len() == 0 {
			message["content"] = nil
		}
	}
	return c.completed(map[string]any{"message": message}, c.finish)
}

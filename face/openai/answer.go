package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// defaultTokens is the maximum length of a completion, outside of chats, if the request sets none.
const defaultTokens = 16

// maxWritten limits the total length of the completions if a request has several prompts.
const maxWritten = 1 << 18

// answer is the answer to one request, with a choice for each prompt.
type answer struct {
	model   *Model
	w       http.ResponseWriter
	control *http.ResponseController
	inChat  bool
	request request
	size    int // of its body in bytes
	choices []*choice
	id      string
	created int64

	mu    sync.Mutex // guards the fields below, and w
	begun bool       // a part of the stream was sent
}

// encode tokenizes the prompts and determines the maximum lengths of the completions.
func (a *answer) encode(form *callForm) *problem {
	if a.inChat {
		return a.encodeChat(form)
	}
	for i, p := range a.request.prompts {
		param := "prompt"
		if a.request.severalPrompts {
			param = fmt.Sprintf("prompt[%d]", i)
		}
		ids := p.ids
		if ids == nil {
			var err error
			if ids, err = a.model.Tokenizer.EncodeWithSpecial([]byte(p.text)); err != nil {
				return invalid(param, "", "%s: %v", param, err)
			}
		}
		if problem := a.addChoice(param, ids); problem != nil {
			return problem
		}
		if _, err := a.model.Tokenizer.Decode(ids); err != nil { // the request may contain unknown ids
			return invalid(param, "", "%s: %v", param, err)
		}
	}
	return nil
}

// encodeChat tokenizes a conversation.
func (a *answer) encodeChat(form *callForm) *problem {
	const param = "messages"
	t := a.model.Template
	if t == nil {
		return invalid(param, "", "%v: start the server with --chat-template, or ask /v1/completions", a.model.NoTemplate)
	}
	if problem := a.request.fits(t, form); problem != nil {
		return problem
	}
	if !t.Reads(developer) {
		for i := range a.request.messages {
			if m := &a.request.messages[i]; m.Role == developer {
				m.Role = "system"
			}
		}
	}
	ids, err := t.Encode(a.model.Tokenizer, chat.Input{
		Messages: a.request.messages, Tools: a.request.tools, AddGenerationPrompt: true, Tokens: a.model.Named, Now: time.Now(),
	}, a.model.Ends)
	switch {
	case errors.Is(err, chat.ErrToolControl):
		return invalid("tools", "control_tokens", "%v", err)
	case errors.Is(err, chat.ErrControl):
		return invalid(param, "control_tokens", "%v", err)
	case err != nil:
		return invalid(param, "", "%v", err)
	}
	problem := a.addChoice(param, ids)
	if problem == nil && a.request.tools != nil && a.request.toolChoice != "none" {
		a.choices[0].calls = &callReader{form: form, names: toolNames(a.request.tools)}
	}
	return problem
}

// addChoice adds a choice for a tokenized prompt, if its completion fits the context.
func (a *answer) addChoice(param string, ids []int32) *problem {
	c := &choice{answer: a, index: len(a.choices), ids: ids, limit: a.request.maxTokens}
	room := a.model.Context - len(ids)
	const tooLong = "context_length_exceeded"
	if len(ids) == 0 {
		return invalid(param, "", "%s has no tokens; want at least 1", param)
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return int(id) >= a.model.Vocab }); i >= 0 {
		return invalid(param, "", "token %d of %s is %d, want less than the model's vocab_size, %d", i, param, ids[i], a.model.Vocab)
	}
	switch {
	case room < 1:
		return invalid(param, tooLong, "%s has %d tokens, but the context length of the model is %d tokens, and the answer needs at least 1", param, len(ids), a.model.Context)
	case room < c.limit:
		return invalid(a.request.maxField, tooLong, "%s is %d, but the context length of the model is %d tokens: %s has %d tokens, so at most %d remain",
			a.request.maxField, c.limit, a.model.Context, param, len(ids), room)
	case c.limit == 0 && a.inChat:
		c.limit = room
	case c.limit == 0:
		c.limit = min(room, defaultTokens)
	}
	a.choices = append(a.choices, c)
	return nil
}

// write generates all choices and sends them. The caller holds one slot of the queue. borrow takes
// an extra slot and returns a function that releases it, or nil if there is no free slot.
func (a *answer) write(ctx context.Context, borrow func() func()) *problem {
	a.id, a.created = strings.ToLower(rand.Text()), time.Now().Unix()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first *problem
	var once sync.Once
	write := func(c *choice) {
		if problem := c.write(ctx); problem != nil {
			once.Do(func() { first = problem })
			cancel(problem)
		}
	}
	var others sync.WaitGroup
	rest := a.choices
	for len(rest) > 0 && ctx.Err() == nil {
		own := rest[0]
		for rest = rest[1:]; len(rest) > 0; rest = rest[1:] {
			giveBack := borrow()
			if giveBack == nil {
				break
			}
			c := rest[0]
			others.Go(func() {
				defer giveBack()
				write(c)
			})
		}
		write(own)
	}
	others.Wait()
	switch {
	case first != nil:
		return first
	case len(rest) > 0:
		return early(ctx)
	}
	return a.end()
}

// tokens returns the number of tokens in the prompts, and the number of generated tokens.
func (a *answer) tokens() (prompt, written int) {
	for _, c := range a.choices {
		prompt, written = prompt+len(c.ids), written+c.count
	}
	return prompt, written
}

func failed(err error) *problem {
	return &problem{status: http.StatusInternalServerError, kind: "server_error", message: "the model failed; the server's log contains the reason", cause: err}
}

// object returns the JSON object of an answer, or of a part of a stream.
func (a *answer) object(choices ...any) map[string]any {
	object := map[string]any{"id": "cmpl-" + a.id, "object": "text_completion", "created": a.created, "model": a.model.Name, "choices": choices}
	switch {
	case a.inChat && a.request.stream:
		object["id"], object["object"] = "chatcmpl-"+a.id, "chat.completion.chunk"
	case a.inChat:
		object["id"], object["object"] = "chatcmpl-"+a.id, "chat.completion"
	}
	if a.request.usage {
		object["usage"] = nil // set in the last event only
	}
	return object
}

// end sends the answer, or the end of its stream.
func (a *answer) end() *problem {
	prompt, written := a.tokens()
	usage := map[string]any{"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
	if !a.request.stream {
		choices := make([]any, len(a.choices))
		for i, c := range a.choices {
			choices[i] = c.whole()
		}
		whole := a.object(choices...)
		whole["usage"] = usage
		_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		writeJSON(a.w, http.StatusOK, whole)
		return nil
	}
	var err error
	if a.request.usage {
		object := a.object()
		object["choices"], object["usage"] = []any{}, usage
		err = a.event(object)
	}
	if errors.Join(err, a.send("[DONE]")) != nil {
		return gone
	}
	return nil
}

// fail sends a problem instead of the answer, or of the rest of its stream.
func (a *answer) fail(p *problem) {
	if a.begun {
		_ = a.event(p.body()) // the reader may have disconnected
		return
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	writeJSON(a.w, p.status, p.body())
}

func (a *answer) event(body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.send(string(data))
}

// send sends an event of the stream.
func (a *answer) send(data string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-cache")
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := a.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		return err
	}
	return a.control.Flush()
}

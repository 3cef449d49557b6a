package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// defaultTokens are written to a prompt, without a conversation, if the request does not say how many.
const defaultTokens = 16

// errStop ends an answer at a string of stop.
var errStop = errors.New("the answer has a string of stop")

// answer is what one request gets.
type answer struct {
	model   *Model
	w       http.ResponseWriter
	control *http.ResponseController
	inChat  bool
	request request
	size    int     // of its body in bytes
	ids     []int32 // of the prompt
	most    int     // tokens
	count   int     // of tokens that the model wrote
	finish  string
	text    strings.Builder // where it is not streamed
	begun   bool            // a part of the stream is sent
	id      string
	created int64
}

// encode makes the ids that the model goes on from, and finds how many may follow.
func (a *answer) encode() *problem {
	var err error
	param := "prompt"
	if a.inChat {
		param = "messages"
		if a.model.Template == nil {
			return invalid(param, "", "%v: start the server with --chat-template, or ask /v1/completions", a.model.NoTemplate)
		}
		a.ids, err = a.model.Template.Encode(a.model.Tokenizer, chat.Input{
			Messages: a.request.messages, Tools: a.request.tools, AddGenerationPrompt: true, Tokens: a.model.Named, Now: time.Now(),
		}, a.model.Ends)
	} else {
		a.ids, err = a.model.Tokenizer.EncodeWithSpecial([]byte(a.request.prompt))
	}
	room := a.model.Context - len(a.ids)
	a.most = a.request.maxTokens
	switch {
	case errors.Is(err, chat.ErrControl):
		return invalid(param, "control_tokens", "%v", err)
	case err != nil:
		return invalid(param, "", "%v", err)
	case len(a.ids) == 0:
		return invalid(param, "", "%s has no tokens", param)
	case room < max(a.most, 1):
		return invalid(param, "context_length_exceeded", "the context length of the model is %d tokens: %s has %d, and %d are to follow", a.model.Context, param, len(a.ids), max(a.most, 1))
	case a.most == 0 && a.inChat:
		a.most = room
	case a.most == 0:
		a.most = min(room, defaultTokens)
	}
	return nil
}

// write lets the model write, and sends what it writes.
func (a *answer) write(ctx context.Context) *problem {
	stream, err := a.model.Tokenizer.NewStream(a.ids)
	if err != nil {
		return failed(err)
	}
	a.id, a.created = strings.ToLower(rand.Text()), time.Now().Unix()
	stop := stopper{stops: a.request.stops}
	o := Options{MaxTokens: a.most, Temperature: a.request.temperature, TopP: a.request.topP, Seed: mathrand.Uint64()}
	if a.request.seed != nil {
		o.Seed = uint64(*a.request.seed)
	}
	err = a.model.Tokens(ctx, a.ids, o, func(id int32) error {
		a.count++
		piece, err := stream.Next(id)
		if err != nil {
			return err
		}
		text, found := stop.next(valid(piece))
		if err := a.add(text); err != nil {
			return err
		}
		if found {
			return errStop
		}
		return nil
	})
	a.finish = "stop"
	switch {
	case errors.Is(err, errStop):
		return a.end()
	case err == nil && a.count == a.most, err != nil && a.count > 0 && errors.Is(context.Cause(ctx), errTime):
		a.finish = "length"
	case err != nil && ctx.Err() != nil:
		return early(ctx)
	case err != nil:
		return failed(err)
	}
	if err := a.addRest(stream, &stop); err != nil {
		return gone
	}
	return a.end()
}

// addRest adds what was held back.
func (a *answer) addRest(stream *tokenizer.Stream, stop *stopper) error {
	piece, err := stream.Flush()
	if err != nil {
		return err
	}
	text, found := stop.next(valid(piece))
	if found {
		a.finish = "stop"
	}
	return a.add(text + stop.rest())
}

// valid is a text with U+FFFD in place of each byte that is of no character.
func valid(piece []byte) string { return string([]rune(string(piece))) }

func failed(err error) *problem {
	return &problem{status: http.StatusInternalServerError, kind: "server_error", message: "the model failed: the server's log says why", cause: err}
}

// add adds a piece of the text.
func (a *answer) add(text string) error {
	if !a.request.stream {
		a.text.WriteString(text)
		return nil
	}
	if text == "" {
		return nil
	}
	return a.event(a.object(a.part(text), nil))
}

// part is a piece of a stream as a choice has it.
func (a *answer) part(text string) map[string]any {
	if !a.inChat {
		return map[string]any{"text": text}
	}
	delta := map[string]any{"content": text}
	if !a.begun {
		delta["role"] = "assistant"
	}
	return map[string]any{"delta": delta}
}

// object is an answer, or a part of one, with one choice.
func (a *answer) object(choice map[string]any, finish any) map[string]any {
	choice["index"], choice["logprobs"], choice["finish_reason"] = 0, nil, finish
	object := map[string]any{"id": "cmpl-" + a.id, "object": "text_completion", "created": a.created, "model": a.model.Name, "choices": []any{choice}}
	switch {
	case a.inChat && a.request.stream:
		object["id"], object["object"] = "chatcmpl-"+a.id, "chat.completion.chunk"
	case a.inChat:
		object["id"], object["object"] = "chatcmpl-"+a.id, "chat.completion"
	}
	if a.request.usage {
		object["usage"] = nil // but in the last event
	}
	return object
}

// end sends the answer, or the end of its stream.
func (a *answer) end() *problem {
	usage := map[string]any{"prompt_tokens": len(a.ids), "completion_tokens": a.count, "total_tokens": len(a.ids) + a.count}
	if !a.request.stream {
		choice := map[string]any{"text": a.text.String()}
		if a.inChat {
			choice = map[string]any{"message": map[string]any{"role": "assistant", "content": a.text.String(), "refusal": nil}}
		}
		whole := a.object(choice, a.finish)
		whole["usage"] = usage
		_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		writeJSON(a.w, http.StatusOK, whole)
		return nil
	}
	last := a.part("")
	if a.inChat && a.begun {
		last["delta"] = map[string]any{}
	}
	err := a.event(a.object(last, a.finish))
	if a.request.usage {
		object := a.object(map[string]any{}, nil)
		object["choices"], object["usage"] = []any{}, usage
		err = errors.Join(err, a.event(object))
	}
	if errors.Join(err, a.send("[DONE]")) != nil {
		return gone
	}
	return nil
}

// fail sends a problem in place of the answer, or of the rest of its stream.
func (a *answer) fail(p *problem) {
	if a.begun {
		_ = a.event(p.body()) // the reader may have gone
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

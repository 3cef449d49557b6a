package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// callForm is a syntax in which a model writes tool calls.
type callForm struct {
	begin  string // start of calls; if whole is set, spaces may precede it
	whole  bool   // the whole text consists of calls
	marker int32  // id of a control token that has no text and stands for begin; negative: none
	parse  func(text string) ([]called, error)
}

// called is a call as a model writes it: its arguments have one of two names.
type called struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Name       string          `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Parameters json.RawMessage `json:"parameters"`
}

// Starts of calls.
const (
	hermesBegin, hermesEnd = "<tool_call>", "</tool_call>"
	mistralBegin           = "[TOOL_CALLS]"
	llamaAsks              = `{"name": function name, "parameters": ` // requested by the template
)

// formOf returns the syntax that a template teaches the model, or nil if this package does not know
// it.
func formOf(t *chat.Template, coder *tokenizer.Tokenizer) *callForm {
	switch {
	case t.Contains(hermesBegin) && t.Contains(hermesEnd) && !t.Contains("<function="):
		return &callForm{begin: hermesBegin, marker: -1, parse: parseHermes}
	case t.Contains(mistralBegin) && !t.Contains("[ARGS]"):
		f := &callForm{begin: mistralBegin, marker: -1, parse: parseMistral}
		if id, found := coder.ID(mistralBegin); found {
			if _, special := coder.Added(id); special {
				f.marker = id
			}
		}
		return f
	case t.Contains(llamaAsks):
		return &callForm{begin: "{", whole: true, marker: -1, parse: parseObject}
	}
	return nil
}

// writtenBy returns the text that a control token stands for.
func (f *callForm) writtenBy(id int32) string {
	if id == f.marker {
		return f.begin
	}
	return ""
}

// parseHermes parses one or more objects, each within its tags.
func parseHermes(text string) (all []called, err error) {
	for rest := text; strings.TrimSpace(rest) != ""; {
		inner, opened := strings.CutPrefix(strings.TrimSpace(rest), hermesBegin)
		inner, after, closed := strings.Cut(inner, hermesEnd)
		if !opened || !closed {
			return nil, errNoCall
		}
		one, err := parseObject(inner)
		if err != nil {
			return nil, err
		}
		all, rest = append(all, one...), after
	}
	return all, nil
}

// parseMistral parses a list of objects.
func parseMistral(text string) (all []called, err error) {
	return all, decodeCall(strings.TrimPrefix(text, mistralBegin), &all)
}

func parseObject(text string) ([]called, error) {
	var one called
	err := decodeCall(text, &one)
	return []called{one}, err
}

var errNoCall = errors.New("not a call")

// decodeCall decodes a value strictly: it allows no unknown fields, and no text after the value.
func decodeCall(text string, to any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errNoCall
	}
	return nil
}

// call is a tool call in an answer.
type call struct{ id, name, arguments string }

// object returns the call in the form of the API.
func (c call) object() map[string]any {
	return map[string]any{"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments}}
}

// maxCallID limits a call id written by a model, in bytes.
const maxCallID = 64

// made returns the call, or an error if its tool is unknown or its arguments are not an object.
func (c called) made(names map[string]bool) (call, error) {
	arguments := c.Arguments
	switch {
	case !names[c.Name] || c.Type != "" && c.Type != "function" || c.Arguments != nil && c.Parameters != nil:
		return call{}, errNoCall
	case arguments == nil:
		arguments = c.Parameters
	}
	text := "{}"
	if arguments = bytes.TrimSpace(arguments); len(arguments) > 0 && string(arguments) != "null" {
		object, wrong := opened("arguments", arguments)
		if wrong != nil {
			return call{}, wrong
		}
		text = string(object)
	}
	id := c.ID
	if id == "" || len(id) > maxCallID {
		id = strings.ToLower(rand.Text()[:9]) // some templates require nine letters or digits
	}
	return call{id, c.Name, text}, nil
}

// callReader separates tool calls from the text before them. Incomplete calls, and calls of unknown
// tools, remain text.
type callReader struct {
	form  *callForm
	names map[string]bool // of the tools
	held  string          // text that is a call, or may become one
	began bool            // held is a call
	plain bool            // calls can no longer follow
}

// next processes a piece of the text and returns the part that cannot belong to a call.
func (r *callReader) next(piece string) (text string) {
	if r.plain {
		return piece
	}
	r.held += piece
	if r.began {
		return ""
	}
	if r.form.whole {
		first := strings.TrimSpace(r.held)
		r.began = strings.HasPrefix(first, r.form.begin)
		if r.plain = first != "" && !r.began; r.plain {
			text, r.held = r.held, ""
		}
		return text
	}
	at := strings.Index(r.held, r.form.begin)
	if r.began = at >= 0; !r.began {
		at = len(r.held) - unfinished(r.held, r.form.begin)
	}
	text, r.held = r.held[:at], r.held[at:]
	return text
}

// end returns the calls in the text that was held back: only the first call if one is true. If the text
// does not consist of valid calls, end returns it as text.
func (r *callReader) end(one bool) (text string, calls []call) {
	text = r.held
	r.held = ""
	if !r.began {
		return text, nil
	}
	all, err := r.form.parse(text)
	for _, written := range all {
		c, wrong := written.made(r.names)
		err = errors.Join(err, wrong)
		calls = append(calls, c)
	}
	switch {
	case err != nil || len(calls) == 0:
		return text, nil
	case one:
		calls = calls[:1]
	}
	return "", calls
}

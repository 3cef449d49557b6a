package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// message returns the value of a message in templates.
func (r *renderer) message(m Message) *dict {
	d := newDict()
	d.field("role", checked(r, m.Role))
	switch m.Kind {
	case TextContent:
		d.field("content", checked(r, m.Content))
	case NullContent:
		d.field("content", nil)
	}
	if len(m.Calls) > 0 {
		d.field("tool_calls", r.list("tool_calls", m.Calls))
	}
	if len(m.CallID) > 0 {
		d.field("tool_call_id", r.textOrNull("tool_call_id", m.CallID))
	}
	if len(m.Name) > 0 {
		d.field("name", r.textOrNull("name", m.Name))
	}
	return d
}

// textOrNull returns a string that is given as JSON, or nil for null.
func (r *renderer) textOrNull(name string, raw json.RawMessage) any {
	value, err := r.fromJSON(raw)
	if err != nil {
		r.wrong("%s is not a string in JSON (%v)", name, err)
	}
	if _, isText := value.(string); !isText && value != nil {
		r.wrong("%s is %.40s, want a string in JSON", name, raw)
	}
	return value
}

// fromJSON returns the only value of a JSON text.
func (r *renderer) fromJSON(raw json.RawMessage) (any, error) {
	r.spend(len(raw))
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value, err := r.decoded(decoder, 0)
	if _, after := decoder.Token(); err == nil && !errors.Is(after, io.EOF) {
		err = errors.New("unexpected data after the value")
	}
	return value, err
}

// list returns a list that is given as JSON, or nil for nothing and null.
func (r *renderer) list(name string, raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	value, err := r.fromJSON(raw)
	if err != nil {
		r.wrong("%s is not a JSON list: %v", name, err)
	}
	if _, isList := value.(*list); !isList && value != nil {
		r.wrong("%s is %.40s, want a JSON list", name, raw)
	}
	return value
}

// decoded returns the next value of a decoder. Objects keep the order of their keys.
func (r *renderer) decoded(decoder *json.Decoder, depth int) (any, error) {
	r.step(1)
	if depth > maxNesting {
		r.tooMuch("values nested deeper than %d", maxNesting)
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return checked(r, v), nil
	case json.Number:
		return r.number(v.String())
	case json.Delim:
		if v == '[' {
			return r.decodedList(decoder, depth)
		}
		return r.decodedDict(decoder, depth)
	}
	return token, nil // nil, true or false
}

func (r *renderer) decodedList(decoder *json.Decoder, depth int) (any, error) {
	all := &list{}
	for decoder.More() {
		item, err := r.decoded(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		all.items = append(all.items, item)
	}
	_, err := decoder.Token()
	return all, err
}

func (r *renderer) decodedDict(decoder *json.Decoder, depth int) (any, error) {
	all := newDict()
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		value, err := r.decoded(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		all.field(checked(r, key.(string)), value) // an object has only string keys
	}
	_, err := decoder.Token()
	return all, err
}

// number returns a number of JSON as Python reads it.
func (r *renderer) number(text string) (any, error) {
	if strings.ContainsAny(text, ".eE") {
		value, err := strconv.ParseFloat(text, 64)
		return value, err
	}
	value, valid := new(big.Int).SetString(text, 10)
	if !valid || value.BitLen() > maxBits {
		return nil, fmt.Errorf("a number of %d digits", len(text))
	}
	return newInt(value), nil
}

// eachString calls yield with every string of a JSON text, including keys.
func eachString(raw json.RawMessage, yield func(text string) error) error {
	if len(raw) == 0 {
		return nil
	}
	for decoder := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if text, isText := token.(string); isText && err == nil {
			err = yield(text)
		}
		if err != nil {
			return err
		}
	}
}

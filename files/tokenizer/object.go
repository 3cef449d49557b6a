package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// object is a JSON object. err is its first error.
type object struct {
	name   string
	fields map[string]json.RawMessage
	known  []string
	err    error
}

// parseObject parses an object. Unlike encoding/json it distinguishes the case of keys and refuses
// duplicate keys, because readers differ in which of the two counts.
func parseObject(name string, text []byte) (*object, error) {
	o := &object{name: name, fields: map[string]json.RawMessage{}}
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	if err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("%w: %s is not a JSON object", errUnsupported, o.path(""))
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("%s is not valid JSON: %w", o.path(""), err)
		}
		key, _ := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s is not valid JSON: %w", o.path(key), err)
		}
		if _, twice := o.fields[key]; twice {
			return nil, fmt.Errorf("%w: %s occurs twice", errUnsupported, o.path(key))
		}
		o.fields[key] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("%s is not valid JSON: %w", o.path(""), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: unexpected data after %s", errUnsupported, o.path(""))
	}
	return o, nil
}

// path returns the path of a key for messages.
func (o *object) path(key string) string {
	switch {
	case o.name == "" && key == "":
		return "the file"
	case o.name == "":
		return key
	case key == "":
		return o.name
	default:
		return o.name + "." + key
	}
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w: %s", errUnsupported, fmt.Sprintf(format, args...))
	}
}

// get returns the value of a supported key. A null counts as missing.
func (o *object) get(key string) (json.RawMessage, bool) {
	o.known = append(o.known, key)
	raw, ok := o.fields[key]
	return raw, ok && string(raw) != "null"
}

// need is get for a required key.
func (o *object) need(key string) (json.RawMessage, bool) {
	raw, ok := o.get(key)
	if !ok {
		o.fail("%s is missing", o.path(key))
	}
	return raw, ok
}

// shorten returns a JSON value in a length suitable for a message.
func shorten(raw []byte) string {
	if len(raw) > 60 {
		return strings.ToValidUTF8(string(raw[:60]), "") + "..."
	}
	return string(raw)
}

// want requires that a key has one of the given JSON values, or is missing.
func (o *object) want(key string, values ...string) {
	o.known = append(o.known, key)
	raw, ok := o.fields[key]
	if !ok {
		return
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		o.fail("%s is not valid JSON", o.path(key))
		return
	}
	if found := compact.String(); !slices.Contains(values, found) {
		o.fail("%s is %s, only %s is supported", o.path(key), shorten([]byte(found)), strings.Join(values, " or "))
	}
}

// unmarshal decodes the value of a key into a simple type.
func (o *object) unmarshal(key string, raw []byte, to any, kind string) {
	if err := json.Unmarshal(raw, to); err != nil {
		o.fail("%s is %s, want %s", o.path(key), shorten(raw), kind)
	}
}

// flag returns a boolean. It is required unless a default is given.
func (o *object) flag(key string, byDefault ...bool) (value bool) {
	raw, ok := o.get(key)
	switch {
	case ok:
		o.unmarshal(key, raw, &value, "true or false")
	case len(byDefault) > 0:
		value = byDefault[0]
	default:
		o.fail("%s is missing", o.path(key))
	}
	return value
}

// text returns a required string.
func (o *object) text(key string) (value string) {
	if raw, ok := o.need(key); ok {
		o.unmarshal(key, raw, &value, "a string")
	}
	return value
}

// character returns a required string of one character.
func (o *object) character(key string) rune {
	value := o.text(key)
	r, size := utf8.DecodeRuneInString(value)
	if o.err == nil && (size == 0 || size != len(value)) {
		o.fail("%s is %q, want one character", o.path(key), value)
	}
	return r
}

// count returns a required integer from 0 to limit.
func (o *object) count(key string, limit int) (value int) {
	raw, ok := o.need(key)
	if !ok {
		return 0
	}
	o.unmarshal(key, raw, &value, "a whole number")
	if o.err == nil && (value < 0 || value > limit) {
		o.fail("%s is %d, want 0 to %d", o.path(key), value, limit)
	}
	return value
}

// object returns a required object, or an empty one on failure.
func (o *object) object(key string) *object {
	raw, ok := o.need(key)
	if !ok {
		return &object{name: o.path(key)}
	}
	return o.inner(o.path(key), raw)
}

func (o *object) inner(name string, raw []byte) *object {
	inner, err := parseObject(name, raw)
	if err != nil {
		if o.err == nil {
			o.err = err
		}
		return &object{name: name}
	}
	return inner
}

// list returns the values of a required array.
func (o *object) list(key string) (values []json.RawMessage) {
	if raw, ok := o.need(key); ok {
		o.unmarshal(key, raw, &values, "an array")
	}
	return values
}

// twoValues decodes an array of two values.
func twoValues(raw []byte, first, second any) bool {
	pair := []any{first, second}
	return json.Unmarshal(raw, &pair) == nil && len(pair) == 2 && pair[0] != nil && pair[1] != nil
}

// done refuses keys that were not requested, because their meaning is unknown.
func (o *object) done() error {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if !slices.Contains(o.known, key) {
			o.fail("%s is an unknown key", o.path(key))
		}
	}
	return o.err
}

// Limits of the parts of a file, larger than in any real file.
const (
	maxComponents = 64
	maxDepth      = 8
)

// components iterates over a normalizer, pre-tokenizer, post-processor or decoder: a single
// component, or a Sequence of them, which may be nested.
type components struct {
	list  string // key of the parts of a Sequence
	count int
	add   func(kind string, o *object) error
}

func (c *components) walk(name string, raw []byte, depth int) error {
	if c.count++; c.count > maxComponents || depth > maxDepth {
		return fmt.Errorf("%w: %s has more than %d parts, or is nested deeper than %d", errUnsupported, name, maxComponents, maxDepth)
	}
	o, err := parseObject(name, raw)
	if err != nil {
		return err
	}
	kind := o.text("type")
	if o.err != nil {
		return o.err
	}
	if kind != "Sequence" {
		if err := c.add(kind, o); err != nil {
			return err
		}
		return o.done()
	}
	parts := o.list(c.list)
	if err := o.done(); err != nil {
		return err
	}
	for i, part := range parts {
		if err := c.walk(fmt.Sprintf("%s[%d]", o.path(c.list), i), part, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// unknownKind returns the error for an unsupported component.
func unknownKind(o *object, kind string) error {
	return fmt.Errorf("%w: %s is %q, which is not supported", errUnsupported, o.path("type"), kind)
}

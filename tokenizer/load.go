package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// ErrUnsupported says that a tokenizer.json asks for something that this package does
// not do, so that its ids would differ.
var ErrUnsupported = errors.New("tokenizer.json is not supported")

// maxFileSize bounds a tokenizer.json, in bytes.
const maxFileSize = 64 << 20

// Load reads a tokenizer.json.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	if info.Size() > maxFileSize {
		return nil, fmt.Errorf("load tokenizer %s: %d bytes, at most %d are read", path, info.Size(), maxFileSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Parse reads the text of a tokenizer.json.
func Parse(text []byte) (*Tokenizer, error) {
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(text), maxFileSize)
	}
	root, err := parseObject("", text)
	if err != nil {
		return nil, err
	}
	root.want("version", `"1.0"`)
	for _, key := range []string{"truncation", "padding", "normalizer"} {
		root.want(key, "null")
	}
	root.want("added_tokens", "[]")
	root.byteLevel("pre_tokenizer", true)
	root.byteLevel("decoder", true)
	root.byteLevel("post_processor", false)
	model := root.object("model")
	root.done()
	if root.err != nil {
		return nil, root.err
	}
	model.want("type", `"BPE"`)
	for _, key := range []string{"dropout", "unk_token"} {
		model.want(key, "null")
	}
	for _, key := range []string{"continuing_subword_prefix", "end_of_word_suffix"} {
		model.want(key, "null", `""`)
	}
	for _, key := range []string{"fuse_unk", "byte_fallback"} {
		model.want(key, "false")
	}
	model.want("ignore_merges", "false", "true") // alike without merges
	model.want("merges", "[]")
	vocab := model.object("vocab")
	model.done()
	if model.err != nil {
		return nil, model.err
	}
	return fromVocab(vocab)
}

// fromVocab reads a vocabulary that must give the ids 0 to 255 to the 256 bytes.
func fromVocab(vocab *object) (*Tokenizer, error) {
	if len(vocab.fields) != vocabSize {
		return nil, fmt.Errorf("%w: model.vocab has %d tokens, only a byte-level vocabulary of %d is", ErrUnsupported, len(vocab.fields), vocabSize)
	}
	var t Tokenizer
	var taken [vocabSize]bool
	for b, character := range alphabet {
		raw, ok := vocab.fields[string(character)]
		if !ok {
			return nil, fmt.Errorf("%w: model.vocab has no token %q for byte %d", ErrUnsupported, character, b)
		}
		var id int
		if err := json.Unmarshal(raw, &id); err != nil || id < 0 || id >= vocabSize || taken[id] {
			return nil, fmt.Errorf("%w: model.vocab gives %q the id %s, want the ids 0 to %d once each", ErrUnsupported, character, raw, vocabSize-1)
		}
		taken[id] = true
		t.ids[b], t.bytes[id] = uint8(id), byte(b)
	}
	return &t, nil
}

// object is a JSON object. The first thing that is wrong with it is kept in err.
type object struct {
	name   string
	fields map[string]json.RawMessage
	known  []string
	err    error
}

// parseObject reads an object. Unlike encoding/json it minds the case of keys and
// refuses a key that is there twice, for readers differ in which of the two counts.
func parseObject(name string, text []byte) (*object, error) {
	o := &object{name: name, fields: map[string]json.RawMessage{}}
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	if err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("%w: %s is not a JSON object", ErrUnsupported, o.path(""))
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
			return nil, fmt.Errorf("%w: %s is there twice", ErrUnsupported, o.path(key))
		}
		o.fields[key] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("%s is not valid JSON: %w", o.path(""), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows %s", ErrUnsupported, o.path(""))
	}
	return o, nil
}

// path names a key of the object in messages.
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
		o.err = fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
	}
}

// want demands that a key has one of the given JSON values, or is not there.
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
		if len(found) > 60 {
			found = found[:60] + "..."
		}
		o.fail("%s is %s, only %s is", o.path(key), found, strings.Join(values, " or "))
	}
}

// object returns the object of a key that must be there, or an empty one on failure.
func (o *object) object(key string) *object {
	o.known = append(o.known, key)
	raw, ok := o.fields[key]
	if !ok {
		o.fail("%s is missing", o.path(key))
		return &object{name: key}
	}
	inner, err := parseObject(o.path(key), raw)
	if err != nil {
		if o.err == nil {
			o.err = err
		}
		return &object{name: key}
	}
	return inner
}

// byteLevel demands a ByteLevel step that adds no space; an optional one may be null.
// Its other settings change no ids: where words split matters only to merges.
func (o *object) byteLevel(key string, required bool) {
	raw, ok := o.fields[key]
	if !ok || string(bytes.TrimSpace(raw)) == "null" {
		o.known = append(o.known, key)
		if required {
			o.fail("%s is missing, only ByteLevel is", o.path(key))
		}
		return
	}
	step := o.object(key)
	step.want("type", `"ByteLevel"`)
	if _, ok := step.fields["type"]; !ok {
		step.fail("%s is missing", step.path("type"))
	}
	if key == "pre_tokenizer" {
		if _, ok := step.fields["add_prefix_space"]; !ok {
			step.fail("%s is missing, which means true; only false is", step.path("add_prefix_space"))
		}
		step.want("add_prefix_space", "false")
	} else {
		step.want("add_prefix_space", "false", "true")
	}
	step.want("trim_offsets", "false", "true")
	step.want("use_regex", "false", "true")
	step.done()
	if o.err == nil {
		o.err = step.err
	}
}

// done refuses the keys that nobody asked for: what they mean is not known here.
func (o *object) done() {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if !slices.Contains(o.known, key) {
			o.fail("%s is a key that is not known here", o.path(key))
		}
	}
}

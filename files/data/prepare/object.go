package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// oneObject is a file with one JSON object. The first list on the path to its field has the texts,
// such as the list data in {"version": "1", "data": [{"text": "a"}]} for data.text. Without a list
// there is one text.
type oneObject struct {
	file   *os.File
	field  string
	values []json.RawMessage
	steps  []step // steps from each value to its text
	read   int64
}

func openObject(from io.Reader, file *os.File, field string, position int64) (*oneObject, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("an object has more than %d bytes; write one object per line", maxDocument)
	}
	if err != nil {
		return nil, err
	}
	o := &oneObject{file: file, field: field, read: position}
	raw, steps, err := keyOf(text, field)
	if err == nil {
		err = o.spread(raw, steps)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; read the file as one text with --format text, or exclude it with --include", err)
	}
	if position > int64(len(o.values)) {
		return nil, fmt.Errorf("the file has %[2]d values, but the interrupted run had read %[1]d; restore the unchanged file, or start again with --force", position, len(o.values))
	}
	return o, nil
}

// spread follows the steps to the first list. A list of numbers is one text of token ids.
func (o *oneObject) spread(raw json.RawMessage, steps []step) error {
	for len(steps) > 0 && steps[0].key != "" && raw[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		inner, found := object[steps[0].key]
		if !found {
			return fmt.Errorf("no key %q on the path %q; name the text's key with --field", steps[0].key, o.field)
		}
		raw, steps = inner, steps[1:]
	}
	o.values, o.steps = []json.RawMessage{raw}, steps
	if raw[0] != '[' || len(steps) > 0 && steps[0].key == "" {
		return nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return err
	}
	if len(elements) > 0 && bytes.IndexByte([]byte("-0123456789"), elements[0][0]) >= 0 {
		return nil
	}
	o.values = elements
	return nil
}

func (o *oneObject) position() int64 { return o.read }
func (o *oneObject) Close() error    { return o.file.Close() }

func (o *oneObject) next() (sample, error) {
	if o.read >= int64(len(o.values)) {
		return sample{}, io.EOF
	}
	raw := o.values[o.read]
	o.read++
	var g gather
	if err := g.fromJSON(raw, o.steps, false); err != nil {
		return sample{}, fmt.Errorf("value %d of key %q %w", o.read, o.field, err)
	}
	return g.sample, nil
}

// errNoField means that the user named a field but no file has fields.
var errNoField = errors.New("does not apply")

// checkField refuses a field if all files are plain text.
func (o Options) checkField(sources []source) error {
	if !o.fieldGiven || len(sources) == 0 {
		return nil
	}
	for _, s := range sources {
		if s.format != formatText {
			return nil
		}
	}
	return fmt.Errorf("--field %s %w: %s is read as one text; omit --field, or set the format with --format", o.Field, errNoField, sources[0].path)
}

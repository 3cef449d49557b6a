package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/base/strictjson"
)

// sample is the content between two separators: a text, or the ids of an encoded text.
type sample struct {
	text []byte
	ids  []int32
}

func (s sample) empty() bool { return len(s.text) == 0 && len(s.ids) == 0 }

// size returns the memory of a sample in bytes.
func (s sample) size() int64 { return int64(len(s.text)) + 4*int64(len(s.ids)) }

// clone returns a sample that stays valid.
func (s sample) clone() sample {
	return sample{append([]byte{}, s.text...), append([]int32{}, s.ids...)}
}

// step leads from a value to a value within it: by a key of an object, or by an index in a list.
type step struct {
	key   string // key of an object; empty with an index
	place int    // index in a list, from 0
}

// maxSteps bounds the depth of a field.
const maxSteps = 32

// parseField splits a field into steps: messages[0].content is the key messages, the first element
// of that list, and the key content of that object. A list without an index stands for all of its
// elements.
func parseField(field string) ([]step, error) {
	var steps []step
	for part := range strings.SplitSeq(field, ".") {
		key, places, _ := strings.Cut(part, "[")
		if key == "" {
			return nil, fmt.Errorf("field %q: a name is missing; write the field as messages[0].content", field)
		}
		steps = append(steps, step{key: key})
		for places != "" {
			number, rest, closed := strings.Cut(places, "]")
			place, err := strconv.ParseUint(number, 10, 31)
			if !closed || err != nil || (rest != "" && rest[0] != '[') {
				return nil, fmt.Errorf("field %q: want a number from 0 on in each pair of brackets, as in messages[0].content", field)
			}
			steps = append(steps, step{place: int(place)})
			places = strings.TrimPrefix(rest, "[")
		}
		if strings.HasSuffix(part, "[") || len(steps) > maxSteps {
			return nil, fmt.Errorf("field %q: want at most %d steps, as in messages[0].content", field, maxSteps)
		}
	}
	return steps, nil
}

// gather builds a sample from the values that a field names.
type gather struct {
	sample
	texts int   // texts added so far
	lists int   // number of lists around the current value
	wrong error // error of any value, because of the type of its column
}

// add adds a text. Several texts become lines.
func (g *gather) add(text []byte) error {
	if len(g.ids) > 0 {
		return errors.New("has both texts and token ids")
	}
	if g.texts > 0 {
		g.text = append(g.text, '\n')
	}
	g.texts++
	if len(text) > maxDocument-len(g.text) {
		return fmt.Errorf("has more than %d bytes; split it", maxDocument)
	}
	if !utf8.Valid(text) {
		return fmt.Errorf("is %w", errEncoding)
	}
	g.text = append(g.text, text...)
	return nil
}

// addID adds a token. The writer checks whether the vocabulary contains it.
func (g *gather) addID(id int64) error {
	switch {
	case g.texts > 0:
		return errors.New("has both texts and token ids")
	case id < 0 || id > math.MaxInt32:
		return fmt.Errorf("has the invalid token id %d", id)
	case len(g.ids) >= maxDocument/4:
		return fmt.Errorf("has more than %d token ids; split the list", maxDocument/4)
	}
	g.ids = append(g.ids, int32(id))
	return nil
}

// textOf returns the sample of a JSON object.
func textOf(line []byte, field string) (sample, error) {
	raw, steps, err := keyOf(line, field)
	if err != nil {
		return sample{}, err
	}
	var g gather
	if err := g.fromJSON(raw, steps, false); err != nil {
		return sample{}, fmt.Errorf("key %q %w", field, err)
	}
	return g.sample, nil
}

// errEncoding means that a text is not UTF-8.
var errEncoding = errors.New("not UTF-8; convert it, as with iconv -f LATIN1 -t UTF-8")

// cause returns an error of JSON without Go's type names.
func cause(err error) error {
	if other, found := errors.AsType[*json.UnmarshalTypeError](err); found {
		return fmt.Errorf("its type is %s", other.Value)
	}
	return err
}

// among lists the first names of a table or an object, for errors about a missing name.
func among(names []string) string {
	const most = 8
	if len(names) == 0 {
		return ""
	}
	var list []string
	for _, name := range names[:min(len(names), most)] {
		list = append(list, fmt.Sprintf("%.40q", name))
	}
	if more := len(names) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return " (it has " + strings.Join(list, ", ") + ")"
}

// keyOf returns the value of the first key of a field in a JSON object, and the remaining steps.
func keyOf(text []byte, field string) (raw json.RawMessage, steps []step, err error) {
	if !utf8.Valid(text) {
		return nil, nil, errEncoding
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(pythonjson.Standard(text), &object); err != nil {
		return nil, nil, fmt.Errorf("not a JSON object: %w", cause(err))
	}
	if raw, found := object[field]; found { // a key may have dots
		return raw, nil, nil
	}
	if steps, err = parseField(field); err != nil {
		return nil, nil, err
	}
	raw, found := object[steps[0].key]
	if !found {
		return nil, nil, fmt.Errorf("no key %q; name the text's key with --field%s", field, among(slices.Sorted(maps.Keys(object))))
	}
	return raw, steps[1:], nil
}

// fromJSON adds the values that a field names within a value. listed is true if the value is an
// element of a list.
func (g *gather) fromJSON(raw json.RawMessage, steps []step, listed bool) error {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case string(raw) == "null": // not a text
		return nil
	case raw[0] == '[':
		return g.fromArray(raw, steps)
	case raw[0] == '{' && len(steps) > 0 && steps[0].key != "":
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		inner, found := object[steps[0].key]
		if !found { // a missing key counts as null
			return nil
		}
		return g.fromJSON(inner, steps[1:], false)
	case raw[0] == '{' && len(steps) == 0:
		return errors.New("is an object, want a string; name a key of the object, as in --field messages.content")
	case len(steps) > 0:
		return fmt.Errorf("ends at a value that does not contain %s", steps[0])
	case listed && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'):
		id, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return fmt.Errorf("has the invalid token id %.20s", raw)
		}
		return g.addID(id)
	}
	// Half a surrogate pair would become U+FFFD, so the text would differ from the author's text.
	if err := strictjson.CheckEscapes(raw); err != nil {
		return fmt.Errorf("has damaged text: %w; remove or repair it", err)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("is not a string: %w", cause(err))
	}
	return g.add([]byte(text))
}

func (g *gather) fromArray(raw json.RawMessage, steps []step) error {
	// Each nested list is scanned once more for each list around it, so the nesting is limited.
	if g.lists++; g.lists > maxSteps {
		return fmt.Errorf("has lists nested deeper than %d", maxSteps)
	}
	defer func() { g.lists-- }()
	only := -1
	if len(steps) > 0 && steps[0].key == "" {
		only, steps = steps[0].place, steps[1:]
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	var element json.RawMessage
	for i := 0; decoder.More(); i++ {
		element = element[:0]
		if err := decoder.Decode(&element); err != nil {
			return err
		}
		if only >= 0 && i != only {
			continue
		}
		if err := g.fromJSON(element, steps, only < 0); err != nil {
			return err
		}
		if i == only {
			return nil
		}
	}
	return nil
}

func (s step) String() string {
	if s.key != "" {
		return strconv.Quote(s.key)
	}
	return fmt.Sprintf("[%d]", s.place)
}

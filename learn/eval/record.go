package eval

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrDocument means that a document does not have the form that its task requires.
var ErrDocument = errors.New("invalid document")

// record is a row of a data set: columns by name, nested ones with dots. Values are string, int64,
// float64, bool, nil, or []any of these. It keeps the first error.
type record struct {
	values map[string]any
	bad    *error
}

func newRecord(values map[string]any) record { return record{values, new(error)} }

func (r record) err() error { return *r.bad }

func (r record) fail(column, format string, args ...any) {
	if *r.bad == nil {
		*r.bad = fmt.Errorf("%w: column %s: "+format, append([]any{ErrDocument, column}, args...)...)
	}
}

func (r record) text(column string) string {
	text, ok := r.values[column].(string)
	if !ok {
		r.fail(column, "want a text, not %s", kind(r.values[column]))
	}
	return text
}

func (r record) texts(column string) []string {
	list, ok := r.values[column].([]any)
	if !ok {
		r.fail(column, "want a list of texts, not %s", kind(r.values[column]))
	}
	texts := make([]string, len(list))
	for i, value := range list {
		if texts[i], ok = value.(string); !ok {
			r.fail(column, "want a list of texts, but the list contains %s", kind(value))
		}
	}
	return texts
}

// integer also accepts a text of digits, because some data sets have such labels.
func (r record) integer(column string) int {
	switch v := r.values[column].(type) {
	case int64:
		if v >= 0 && v <= math.MaxInt32 {
			return int(v)
		}
	case float64:
		if n := int(v); v >= 0 && v <= math.MaxInt32 && float64(n) == v {
			return n
		}
	case bool:
		if v {
			return 1
		}
		return 0
	case string:
		if n, err := strconv.ParseUint(v, 10, 31); err == nil {
			return int(n)
		}
	}
	r.fail(column, "want a whole number, not %v; does this split have no labels?", r.values[column])
	return 0
}

func kind(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "a text"
	case []any:
		return "a list"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	}
	return "an object"
}

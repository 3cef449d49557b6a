package config

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table reads the keys of one TOML table. It records every key that it reads as known, and done
// reports the others. If a value is missing or has the wrong type, table adds an error to the
// document and returns zero, so that one pass finds all errors.
type table struct {
	*document
	path   []string
	values map[string]any
	known  []string
}

// name returns the table's name for messages.
func (t *table) name() string {
	if len(t.path) == 0 {
		return "the top level"
	}
	return "[" + strings.Join(t.path, ".") + "]"
}

func (t *table) below(key string) []string { return append(slices.Clone(t.path), key) }

// fail adds an error about a key of the table.
func (t *table) fail(key, format string, args ...any) {
	t.document.fail(t.below(key), t.name()+" "+key+": "+format, args...)
}

// has reports whether the table has a key, and records the key as known.
func (t *table) has(key string) bool {
	t.known = append(t.known, key)
	_, ok := t.values[key]
	return ok
}

// required returns the value of a required key.
func (t *table) required(key string) (any, bool) {
	if !t.has(key) {
		t.document.fail(t.path, "%s: missing key %q", t.name(), key)
		return nil, false
	}
	return t.values[key], true
}

// done reports the unknown keys.
func (t *table) done() {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if !slices.Contains(t.known, key) {
			t.unknown(key, t.known)
		}
	}
}

func (t *table) unknown(key string, known []string) {
	t.document.fail(t.below(key), "%s: unknown key %q%s", t.name(), key, didYouMean(key, known))
}

// sub returns the table in a value.
func (t *table) sub(key string, value any) (*table, bool) {
	values, ok := value.(map[string]any)
	if !ok {
		t.fail(key, "want a table, found %s", describe(value))
		return nil, false
	}
	return &table{document: t.document, path: t.below(key), values: values}, true
}

// table reads a required table.
func (t *table) table(key string) (*table, bool) {
	if !t.has(key) {
		t.document.fail(t.path, "missing table [%s]", strings.Join(t.below(key), "."))
		return nil, false
	}
	return t.sub(key, t.values[key])
}

// unsigned is the type of an integer in a configuration.
type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// number reads a required integer that fits into T.
func number[T unsigned](t *table, key string) T {
	value, ok := t.required(key)
	if !ok {
		return 0
	}
	return toNumber[T](t, key, value)
}

// numberOr reads an integer, or returns fallback if the key is missing.
func numberOr[T unsigned](t *table, key string, fallback T) T {
	if !t.has(key) {
		return fallback
	}
	return toNumber[T](t, key, t.values[key])
}

func toNumber[T unsigned](t *table, key string, value any) T {
	whole, ok := value.(int64)
	if !ok {
		t.fail(key, "want a whole number, found %s", describe(value))
		return 0
	}
	if largest := uint64(^T(0)); whole < 0 || uint64(whole) > largest {
		t.fail(key, "%d is out of range, want 0 to %d", whole, min(largest, math.MaxInt64))
		return 0
	}
	return T(whole)
}

// float reads a required number that is finite and not negative.
func (t *table) float(key string) float64 {
	value, ok := t.required(key)
	if !ok {
		return 0
	}
	return t.toFloat(key, value)
}

// floatOr reads a finite number, or returns fallback if the key is missing.
func (t *table) floatOr(key string, fallback float64) float64 {
	if !t.has(key) {
		return fallback
	}
	return t.toFloat(key, t.values[key])
}

func (t *table) toFloat(key string, value any) float64 {
	var number float64
	switch value := value.(type) {
	case float64:
		number = value
	case int64:
		number = float64(value)
	default:
		t.fail(key, "want a number, found %s", describe(value))
		return 0
	}
	if math.IsNaN(number) || math.IsInf(number, 0) || number < 0 {
		t.fail(key, "%v is out of range, want a finite number of at least 0", number)
		return 0
	}
	return number + 0 // −0 becomes 0, so that a value has one encoding
}

// bool reads true or false.
func (t *table) bool(key string) bool {
	value, ok := t.required(key)
	if !ok {
		return false
	}
	truth, ok := value.(bool)
	if !ok {
		t.fail(key, "want true or false, found %s", describe(value))
	}
	return truth
}

// text reads a required string of at most limit bytes.
func (t *table) text(key string, limit int) string {
	value, ok := t.required(key)
	if !ok {
		return ""
	}
	return t.toText(key, value, limit)
}

// textOr reads a string, or returns fallback if the key is missing.
func (t *table) textOr(key, fallback string, limit int) string {
	if !t.has(key) {
		return fallback
	}
	return t.toText(key, t.values[key], limit)
}

func (t *table) toText(key string, value any, limit int) string {
	text, ok := value.(string)
	if !ok {
		t.fail(key, "want a string, found %s", describe(value))
		return ""
	}
	if len(text) > limit {
		t.fail(key, "%d bytes long, at most %d fit", len(text), limit)
		return ""
	}
	return text
}

// nonEmpty reads a string of 1 to limit bytes.
func (t *table) nonEmpty(key string, limit int) string {
	failed := len(t.problems)
	text := t.text(key, limit)
	if text == "" && len(t.problems) == failed {
		t.fail(key, "is empty")
	}
	return text
}

// oneOf reads a string that must be one of choices.
func oneOf[T ~string](t *table, key string, choices ...T) T {
	value, ok := t.required(key)
	if !ok {
		return ""
	}
	text, ok := value.(string)
	if !ok {
		t.fail(key, "want a string, found %s", describe(value))
		return ""
	}
	if !slices.Contains(choices, T(text)) {
		names := make([]string, len(choices))
		for i, choice := range choices {
			names[i] = string(choice)
		}
		t.fail(key, "unknown value %q%s; want one of %s", text, didYouMean(text, names), strings.Join(names, ", "))
		return ""
	}
	return T(text)
}

// variant is one case of an enum: `key = "Name"`, or a table whose only key is the name.
type variant struct {
	name  string
	owner *table // contains the value under key
	key   string
	outer *table // contains the name as its key; nil if the value was only the name
}

// body returns the table of the variant.
func (v variant) body() (*table, bool) {
	if v.outer == nil {
		v.owner.document.fail(v.owner.below(v.key), "%s %s: %q needs its settings, in a table [%s]",
			v.owner.name(), v.key, v.name, strings.Join(append(v.owner.below(v.key), v.name), "."))
		return nil, false
	}
	return v.outer.table(v.name)
}

// text returns the string of the variant, of 1 to limit bytes.
func (v variant) text(limit int) string {
	if v.outer == nil {
		v.owner.fail(v.key, "%q needs a value: %s = { %s = \"...\" }", v.name, v.key, v.name)
		return ""
	}
	return v.outer.nonEmpty(v.name, limit)
}

// variant reads a required enum.
func (t *table) variant(key string, names ...string) (variant, bool) {
	if !t.has(key) {
		t.document.fail(t.path, "%s: missing key %q, want one of %s", t.name(), key, strings.Join(names, ", "))
		return variant{}, false
	}
	return t.toVariant(key, t.values[key], names)
}

func (t *table) toVariant(key string, value any, names []string) (variant, bool) {
	if name, ok := value.(string); ok {
		if !slices.Contains(names, name) {
			t.fail(key, "unknown value %q%s; want one of %s", name, didYouMean(name, names), strings.Join(names, ", "))
			return variant{}, false
		}
		return variant{name: name, owner: t, key: key}, true
	}
	outer, ok := t.sub(key, value)
	if !ok {
		return variant{}, false
	}
	var found []string
	clean := true
	for _, name := range slices.Sorted(maps.Keys(outer.values)) {
		if slices.Contains(names, name) {
			found = append(found, name)
		} else {
			outer.unknown(name, names)
			clean = false
		}
	}
	if len(found) != 1 {
		if clean || len(found) > 1 {
			outer.document.fail(outer.path, "%s: want exactly one of %s, found %s", outer.name(), strings.Join(names, ", "), orNone(found))
		}
		return variant{}, false
	}
	return variant{name: found[0], owner: t, key: key, outer: outer}, true
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " and ")
}

// describe returns the name of the TOML type of a value.
func describe(value any) string {
	switch value := value.(type) {
	case string:
		return "the string " + strconv.Quote(value)
	case int64:
		return "the number " + strconv.FormatInt(value, 10)
	case float64:
		return "the number " + strconv.FormatFloat(value, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	default:
		return "a date or time"
	}
}

package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A value of a template is nil, a bool, an int64, a finite float64, a string, or one of these.
type (
	undefined struct{ what string }
	list      struct {
		items []any
		tuple bool
	}
	// dict keeps the order in which keys were first given. Keys are strings.
	dict struct {
		keys   []string
		values map[string]any
	}
	namespace struct{ fields *dict }
	// iterator is what a filter returns that Python computes while it is read: once.
	iterator struct{ items []any }
	// view is what a dict shows of itself.
	view   struct{ items []any }
	method struct {
		of   any
		name string
	}
	global string // a function
	macro  struct {
		node  macroNode
		scope *scope
	}
	loop struct {
		items []any
		at    int
	}
)

func newDict() *dict { return &dict{values: map[string]any{}} }

func (d *dict) set(key string, value any) {
	if _, there := d.values[key]; !there {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

// typeName names the type of a value as Python does, for messages.
func typeName(value any) string {
	switch v := value.(type) {
	case undefined:
		return "undefined"
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *namespace:
		return "namespace"
	case *iterator:
		return "iterator"
	case *view:
		return "view of a dict"
	case *loop:
		return "loop"
	}
	return "function"
}

func truth(value any) bool {
	switch v := value.(type) {
	case undefined, nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	case *loop:
		return len(v.items) > 0
	}
	return true
}

// number returns a value as Python counts with it: True is 1.
func number(value any) (int64, bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// real returns a value that is a number as one with a fraction.
func (r *renderer) real(value any) (float64, bool) {
	if f, isFloat := value.(float64); isFloat {
		return f, true
	}
	n, isNumber := number(value)
	if isNumber && (n > 1<<53 || n < -1<<53) {
		r.unsupported("numbers beyond %d beside ones with a fraction", int64(1)<<53)
	}
	return float64(n), isNumber
}

// equal is == of Python.
func (r *renderer) equal(a, b any, depth int) bool {
	r.step(1)
	if depth > maxNesting {
		r.tooMuch("values nested deeper than %d", maxNesting)
	}
	if x, isNumber := number(a); isNumber {
		if y, other := number(b); other {
			return x == y
		}
	}
	if x, isNumber := r.real(a); isNumber {
		y, other := r.real(b)
		return other && x == y
	}
	switch x := a.(type) {
	case undefined:
		_, same := b.(undefined)
		return same
	case nil:
		return b == nil
	case string:
		y, same := b.(string)
		r.spend(min(len(x), len(y)))
		return same && x == y
	case *list:
		y, same := b.(*list)
		return same && x.tuple == y.tuple && len(x.items) == len(y.items) && !slices.ContainsFunc(indices(x.items), func(i int) bool {
			return !r.equal(x.items[i], y.items[i], depth+1)
		})
	case *dict:
		y, same := b.(*dict)
		if !same || len(x.keys) != len(y.keys) {
			return false
		}
		for _, key := range x.keys {
			value, there := y.values[key]
			if !there || !r.equal(x.values[key], value, depth+1) {
				return false
			}
		}
		return true
	case *namespace, *macro:
		return a == b
	}
	r.unsupported("comparing a value of the type %s", typeName(a))
	return false
}

func indices(items []any) []int {
	all := make([]int, len(items))
	for i := range all {
		all[i] = i
	}
	return all
}

// length is len of Python; found is false where a value has none.
func length(value any) (n int, found bool) {
	switch v := value.(type) {
	case undefined:
		return 0, true
	case string:
		return utf8.RuneCountInString(v), true
	case *list:
		return len(v.items), true
	case *dict:
		return len(v.keys), true
	case *view:
		return len(v.items), true
	case *loop:
		return len(v.items), true
	}
	return 0, false
}

// each returns what a loop over a value goes through.
func (r *renderer) each(value any) []any {
	switch v := value.(type) {
	case undefined:
		return nil
	case string:
		r.spend(16 * len(v))
		var all []any
		for _, c := range v {
			all = append(all, string(c))
		}
		return all
	case *list:
		return v.items
	case *dict:
		r.spend(16 * len(v.keys))
		var all []any
		for _, key := range v.keys {
			all = append(all, key)
		}
		return all
	case *view:
		return v.items
	case *iterator:
		items := v.items
		v.items = nil
		return items
	}
	r.wrong("a value of the type %s cannot be gone through", typeName(value))
	return nil
}

// text is str of Python.
func (r *renderer) text(value any) string {
	switch v := value.(type) {
	case undefined:
		return ""
	case string:
		return v
	}
	b := r.buffer()
	r.repr(b, value, 0)
	return b.String()
}

// repr writes a value as Python shows it.
func (r *renderer) repr(b *buffer, value any, depth int) {
	r.step(1)
	if depth > maxNesting {
		r.tooMuch("values nested deeper than %d", maxNesting)
	}
	switch v := value.(type) {
	case nil:
		b.add("None")
	case bool:
		b.add(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.add(strconv.FormatInt(v, 10))
	case float64:
		b.add(floatText(v))
	case string:
		r.quote(b, v)
	case *list:
		b.add(map[bool]string{true: "(", false: "["}[v.tuple])
		for i, item := range v.items {
			if i > 0 {
				b.add(", ")
			}
			r.repr(b, item, depth+1)
		}
		if v.tuple && len(v.items) == 1 {
			b.add(",")
		}
		b.add(map[bool]string{true: ")", false: "]"}[v.tuple])
	case *dict:
		b.add("{")
		for i, key := range v.keys {
			if i > 0 {
				b.add(", ")
			}
			r.quote(b, key)
			b.add(": ")
			r.repr(b, v.values[key], depth+1)
		}
		b.add("}")
	case undefined:
		b.add("Undefined")
	default:
		r.unsupported("showing a value of the type %s", typeName(value))
	}
}

// floatText is repr of Python: the shortest text of the number, in scientific form from 1e16 on and below 1e-4.
func floatText(v float64) string {
	if abs := math.Abs(v); abs != 0 && (abs >= 1e16 || abs < 1e-4) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// quote writes a string as repr of Python does.
func (r *renderer) quote(b *buffer, text string) {
	mark := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		mark = '"'
	}
	b.add(string(mark))
	for _, c := range text {
		switch {
		case c == mark || c == '\\':
			b.add("\\" + string(c))
		case c == '\n':
			b.add(`\n`)
		case c == '\r':
			b.add(`\r`)
		case c == '\t':
			b.add(`\t`)
		case c < ' ' || c == 0x7f:
			b.add(fmt.Sprintf(`\x%02x`, c))
		case c < 0x7f || unicode.IsPrint(c):
			b.add(string(c))
		default:
			r.unsupported("showing the character %U within a list or dict", c)
		}
	}
	b.add(string(mark))
}

// layout is how JSON is written.
type layout struct {
	indent int // of a level; less than 0: all in one line
}

// json writes a value as json.dumps of Python does with ensure_ascii=False.
func (r *renderer) json(b *buffer, value any, l layout, depth int) {
	r.step(1)
	if depth > maxNesting {
		r.tooMuch("values nested deeper than %d", maxNesting)
	}
	separate := func(first bool, depth int) {
		switch {
		case l.indent >= 0:
			if !first {
				b.add(",")
			}
			b.add("\n" + strings.Repeat(" ", l.indent*depth))
		case !first:
			b.add(", ")
		}
	}
	switch v := value.(type) {
	case nil:
		b.add("null")
	case bool:
		b.add(strconv.FormatBool(v))
	case int64:
		b.add(strconv.FormatInt(v, 10))
	case float64:
		b.add(floatText(v))
	case string:
		jsonString(b, v)
	case *list:
		if len(v.items) == 0 {
			b.add("[]")
			return
		}
		b.add("[")
		for i, item := range v.items {
			separate(i == 0, depth+1)
			r.json(b, item, l, depth+1)
		}
		if l.indent >= 0 {
			separate(true, depth)
		}
		b.add("]")
	case *dict:
		if len(v.keys) == 0 {
			b.add("{}")
			return
		}
		b.add("{")
		for i, key := range v.keys {
			separate(i == 0, depth+1)
			jsonString(b, key)
			b.add(": ")
			r.json(b, v.values[key], l, depth+1)
		}
		if l.indent >= 0 {
			separate(true, depth)
		}
		b.add("}")
	default:
		r.wrong("a value of the type %s cannot be JSON", typeName(value))
	}
}

func jsonString(b *buffer, text string) {
	b.add(`"`)
	for _, c := range text {
		switch c {
		case '"', '\\':
			b.add("\\" + string(c))
		case '\n':
			b.add(`\n`)
		case '\r':
			b.add(`\r`)
		case '\t':
			b.add(`\t`)
		case '\b':
			b.add(`\b`)
		case '\f':
			b.add(`\f`)
		default:
			if c < ' ' {
				b.add(fmt.Sprintf(`\u%04x`, c))
			} else {
				b.add(string(c))
			}
		}
	}
	b.add(`"`)
}

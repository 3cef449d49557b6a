package chat

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// text implements Python's str.
func (r *renderer) text(value any) string {
	if text, isText := str(value); isText {
		return text
	}
	if _, isUndefined := value.(undefined); isUndefined {
		return ""
	}
	b := r.buffer()
	r.repr(b, value, 0)
	return b.String()
}

// repr implements Python's repr.
func (r *renderer) repr(b *buffer, value any, depth int) {
	r.step(1)
	r.nesting(depth)
	switch v := value.(type) {
	case nil:
		b.add("None")
	case bool:
		b.add(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.add(strconv.FormatInt(v, 10))
	case *big.Int:
		b.add(r.decimal(v))
	case float64:
		b.add(floatText(v))
	case string:
		r.quote(b, v)
	case markup:
		b.add("Markup(")
		r.quote(b, string(v))
		b.add(")")
	case *list:
		opening, closing := brackets(v)
		r.reprItems(b, opening, v.items, closing, depth)
	case *dict:
		r.reprDict(b, v, depth)
	case *view:
		if v.kind == rangeType {
			b.add(v.rangeText())
			return
		}
		r.reprItems(b, v.kind+"([", v.items, "])", depth)
	case *loop:
		b.add(fmt.Sprintf("<LoopContext %d/%d>", v.at+1, v.length()))
	case *macro:
		if v.node.name == "" {
			b.add("<Macro anonymous>")
			return
		}
		b.add("<Macro ")
		r.quote(b, v.node.name)
		b.add(">")
	case *namespace:
		b.add("<Namespace ")
		r.repr(b, v.fields, depth+1)
		b.add(">")
	case undefined:
		b.add("Undefined")
	default:
		r.unsupported("showing a value of the type %s", typeName(value))
	}
}

func (r *renderer) reprItems(b *buffer, opening string, items []any, closing string, depth int) {
	b.add(opening)
	for i, item := range items {
		if i > 0 {
			b.add(", ")
		}
		r.repr(b, item, depth+1)
	}
	b.add(closing)
}

func (r *renderer) reprDict(b *buffer, d *dict, depth int) {
	b.add("{")
	for i, hash := range d.hashes {
		if i > 0 {
			b.add(", ")
		}
		r.repr(b, d.keys[i], depth+1)
		b.add(": ")
		r.repr(b, d.values[hash], depth+1)
	}
	b.add("}")
}

// floatText implements repr of a float: the shortest text of the number, in scientific form from
// 1e16 and below 1e-4.
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

var shortEscapes = map[rune]string{'\'': `\'`, '"': `\"`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\\': `\\`}

// hidden are the categories of characters that Python escapes.
var hidden = []*unicode.RangeTable{unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Zs}

// quote writes a string like Python's repr.
func (r *renderer) quote(b *buffer, text string) {
	mark := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		mark = '"'
	}
	b.add(string(mark))
	plain := 0 // start of the text that was not written yet
	for at, c := range text {
		if c >= ' ' && c < 0x7f && c != mark && c != '\\' || c > 0x7f && unicode.IsPrint(c) {
			continue
		}
		b.add(text[plain:at])
		b.add(r.reprEscape(c))
		plain = at + utf8.RuneLen(c)
	}
	b.add(text[plain:])
	b.add(string(mark))
}

// reprEscape returns the escape of a character that Python's repr escapes.
func (r *renderer) reprEscape(c rune) string {
	if short, isShort := shortEscapes[c]; isShort {
		return short
	}
	switch {
	case c > 0xff && !unicode.In(c, hidden...):
		r.unsupported("showing the character %U within a list or dict", c)
	}
	return codeEscape(c)
}

// codeEscape returns the escape of a character by its code.
func codeEscape(c rune) string {
	switch {
	case c > 0xffff:
		return fmt.Sprintf(`\U%08x`, c)
	case c > 0xff:
		return fmt.Sprintf(`\u%04x`, c)
	}
	return fmt.Sprintf(`\x%02x`, c)
}

// layout is the JSON format of tojson.
type layout struct {
	lines     bool // each item on its own line
	indent    string
	item, key string // separators
	ascii     bool
	sorted    bool
}

// tojson implements the filter of transformers, which has the arguments of json.dumps.
func (r *renderer) tojson(of any, g given) any {
	args := g.bind("ensure_ascii", "indent", "separators", "sort_keys")
	l := layout{ascii: truth(or(args[0], false)), sorted: truth(or(args[3], false)), item: ", ", key: ": "}
	_, isPlain := str(of) // Python ignores indent and the types of the separators
	if indent := or(args[1], nil); indent != nil && !isPlain {
		l.lines, l.item = true, ","
		if _, isSafe := indent.(markup); isSafe {
			r.unsupported("tojson with a safe string as indent")
		}
		if text, isText := str(indent); isText {
			l.indent = text
		} else {
			l.indent = r.repeated(" ", g.whole(indent))
		}
	}
	if separators := or(args[2], nil); separators != nil {
		pair := r.each(separators)
		if len(pair) != 2 {
			r.wrong("separators of tojson has %d values, want 2", len(pair))
		}
		for i, to := range []*string{&l.item, &l.key} {
			if text, isString := pair[i].(string); isString {
				*to = text
			} else if !isPlain {
				r.unsupported("tojson with a separator of the type %s", typeName(pair[i]))
			}
		}
	}
	b := r.buffer()
	r.json(b, of, l, 0)
	return b.String()
}

// json writes a value like Python's json.dumps.
func (r *renderer) json(b *buffer, value any, l layout, depth int) {
	r.step(1)
	r.nesting(depth)
	switch v := value.(type) {
	case string, markup:
		text, _ := str(v)
		jsonString(b, text, l.ascii)
	case *list:
		r.jsonItems(b, "[]", len(v.items), l, depth, func(i int) { r.json(b, v.items[i], l, depth+1) })
	case *dict:
		order := r.jsonOrder(v, l)
		r.jsonItems(b, "{}", len(order), l, depth, func(i int) {
			at := order[i]
			if text, isText := str(v.keys[at]); isText {
				jsonString(b, text, l.ascii)
			} else {
				jsonString(b, r.jsonWord(v.keys[at]), l.ascii)
			}
			b.add(l.key)
			r.json(b, v.values[v.hashes[at]], l, depth+1)
		})
	default:
		b.add(r.jsonWord(value))
	}
}

// jsonWord returns the JSON of a value that is not a text, list or dict.
func (r *renderer) jsonWord(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64, *big.Int, float64:
		return r.text(value)
	}
	r.wrong("a value of the type %s cannot be JSON", typeName(value))
	return ""
}

// jsonOrder returns the order of the keys of an object.
func (r *renderer) jsonOrder(d *dict, l layout) []int {
	if l.sorted {
		return r.sorted(d.keys, false)
	}
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	return order
}

func (r *renderer) jsonItems(b *buffer, brackets string, n int, l layout, depth int, write func(int)) {
	if n == 0 {
		b.add(brackets)
		return
	}
	b.add(brackets[:1])
	for i := range n {
		if i > 0 {
			b.add(l.item)
		}
		r.jsonLine(b, l, depth+1)
		write(i)
	}
	r.jsonLine(b, l, depth)
	b.add(brackets[1:])
}

func (r *renderer) jsonLine(b *buffer, l layout, depth int) {
	if l.lines {
		b.add("\n")
		b.add(r.repeated(l.indent, int64(depth)))
	}
}

const jsonEscaped = "\"\\\n\r\t\b\f"

func jsonString(b *buffer, text string, ascii bool) {
	b.add(`"`)
	plain := 0 // start of the text that was not written yet
	for at, c := range text {
		if c >= ' ' && c != '"' && c != '\\' && (c <= '~' || !ascii) {
			continue
		}
		b.add(text[plain:at])
		b.add(jsonEscape(c))
		plain = at + utf8.RuneLen(c)
	}
	b.add(text[plain:])
	b.add(`"`)
}

func jsonEscape(c rune) string {
	if at := strings.IndexRune(jsonEscaped, c); at >= 0 {
		return "\\" + `"\nrtbf`[at:at+1]
	}
	if c > 0xffff {
		high, low := utf16.EncodeRune(c)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, c)
}

// sorted returns the indices of the sorted keys, like Python's sorted with that order of its items.
func (r *renderer) sorted(keys []any, reverse bool) []int {
	order := make([]int, len(keys))
	for i := range order {
		if order[i] = i; i > 0 {
			r.order("<", keys[i], keys[0], 0)
		}
	}
	r.spend(16 * len(keys))
	slices.SortStableFunc(order, func(a, b int) int {
		if n := r.order("<", keys[a], keys[b], 0); !reverse {
			return n
		} else {
			return -n
		}
	})
	return order
}

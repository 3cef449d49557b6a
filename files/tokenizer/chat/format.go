package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWidth bounds the width of a formatted value.
const maxWidth = 10_000

// placeholder is a conversion of the operator %: %(key)-05.2f.
type placeholder struct {
	key              string
	hasKey           bool
	left, zero, plus bool
	space            bool
	width, precision int // -1: left out
	verb             byte
}

// placeholderAt reads a placeholder behind its %, and returns the text after it.
func (r *renderer) placeholderAt(text string) (p placeholder, rest string) {
	p = placeholder{width: -1, precision: -1}
	if strings.HasPrefix(text, "(") {
		end := strings.IndexByte(text, ')')
		if end < 0 || strings.ContainsRune(text[1:end], '(') {
			r.wrong("a key of a format has no end")
		}
		p.key, p.hasKey, text = text[1:end], true, text[end+1:]
	}
	for ; text != "" && strings.IndexByte("-0+ ", text[0]) >= 0; text = text[1:] {
		p.left = p.left || text[0] == '-'
		p.zero = p.zero || text[0] == '0'
		p.plus = p.plus || text[0] == '+'
		p.space = p.space || text[0] == ' '
	}
	p.width, text = r.formatNumber(text)
	if strings.HasPrefix(text, ".") {
		if p.precision, text = r.formatNumber(text[1:]); p.precision < 0 {
			p.precision = 0
		}
	}
	text = strings.TrimLeft(text, "hlL")
	if text == "" {
		r.wrong("a format is incomplete")
	}
	p.verb = text[0]
	return p, text[1:]
}

func (r *renderer) formatNumber(text string) (n int, rest string) {
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	if end == 0 {
		return -1, text
	}
	n, err := strconv.Atoi(text[:end])
	if err != nil || n > maxWidth {
		r.tooMuch("a format of %s characters", text[:end])
	}
	return n, text[end:]
}

// formatted is the operator % of strings.
func (r *renderer) formatted(format string, value any, escape bool) string {
	values, single := []any{value}, true
	if tuple, isList := value.(*list); isList && tuple.tuple {
		values, single = tuple.items, false
	}
	b, used := r.buffer(), 0
	for {
		text, rest, found := strings.Cut(format, "%")
		b.add(text)
		if !found {
			break
		}
		r.step(1)
		var p placeholder
		if p, format = r.placeholderAt(rest); p.verb == '%' {
			b.add("%")
			continue
		}
		var operand any
		if d, isDict := value.(*dict); p.hasKey && isDict {
			var there bool
			if operand, there = d.values[p.key]; !there {
				r.wrong("a format has the missing key %s", p.key)
			}
			used = len(values)
		} else if used < len(values) && !p.hasKey {
			operand = values[used]
			used++
		} else {
			r.wrong("a format has more places than values")
		}
		b.add(r.convert(p, operand, escape))
	}
	switch value.(type) {
	case *dict, *view, undefined:
	case *list:
		if !single && used < len(values) {
			r.wrong("a format has fewer places than values")
		}
	default:
		if used < len(values) {
			r.wrong("a format has fewer places than values")
		}
	}
	return b.String()
}

// convert returns the text of one value of a format.
func (r *renderer) convert(p placeholder, value any, escape bool) string {
	var text string
	switch p.verb {
	case 's':
		if text = r.text(value); escape {
			text = string(r.escaped(value))
		}
	case 'r', 'a':
		b := r.buffer()
		if r.repr(b, value, 0); p.verb == 'a' {
			r.unsupported("the format %%a")
		}
		if text = b.String(); escape {
			text = string(r.escaped(text))
		}
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return r.aligned(p, r.convertWhole(p, value))
	case 'f', 'F', 'e', 'E':
		number, isNumber := r.real(value)
		if !isNumber {
			r.wrong("the format %%%c of a value of the type %s", p.verb, typeName(value))
		}
		if p.precision < 0 {
			p.precision = 6
		}
		r.spend(400 + p.precision)
		return r.aligned(p, p.sign(math.Signbit(number))+strconv.FormatFloat(math.Abs(number), formatLetters[p.verb], p.precision, 64))
	default:
		r.unsupported("the format %%%c", p.verb)
	}
	if all := []rune(text); p.precision >= 0 && len(all) > p.precision {
		text = string(all[:p.precision])
	}
	p.zero = false
	return r.aligned(p, text)
}

// formatLetters are the verbs of floats in the words of strconv.
var formatLetters = map[byte]byte{'f': 'f', 'F': 'f', 'e': 'e', 'E': 'E'}

func (r *renderer) convertWhole(p placeholder, value any) string {
	n, isWhole := whole(value)
	if f, isFloat := value.(float64); isFloat && strings.IndexByte("diu", p.verb) >= 0 {
		n, isWhole = new(big.Int), true
		new(big.Float).SetFloat64(math.Trunc(f)).Int(n)
	}
	if !isWhole {
		r.wrong("the format %%%c of a value of the type %s", p.verb, typeName(value))
	}
	base := map[byte]int{'x': 16, 'X': 16, 'o': 8}[p.verb]
	if base == 0 {
		base = 10
	}
	r.spend(n.BitLen())
	text := new(big.Int).Abs(n).Text(base)
	if p.verb == 'X' {
		text = strings.ToUpper(text)
	}
	text = r.repeated("0", int64(p.precision-len(text))) + text
	return p.sign(n.Sign() < 0) + text
}

func (p placeholder) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case p.plus:
		return "+"
	case p.space:
		return " "
	}
	return ""
}

// aligned fills a text up to the width.
func (r *renderer) aligned(p placeholder, text string) string {
	left := int64(p.width - utf8.RuneCountInString(text))
	switch {
	case left <= 0:
		return text
	case p.left:
		return text + r.repeated(" ", left)
	case p.zero:
		sign := ""
		if strings.IndexByte("+- ", text[0]) >= 0 {
			sign, text = text[:1], text[1:]
		}
		return sign + r.repeated("0", left) + text
	}
	return r.repeated(" ", left) + text
}

// braces is str.format with plain fields: {}, {0} and {name}.
func (r *renderer) braces(format string, g given) string {
	b, next := r.buffer(), 0
	for format != "" {
		r.step(1)
		at := strings.IndexAny(format, "{}")
		if at < 0 {
			b.add(format)
			break
		}
		b.add(format[:at])
		if strings.HasPrefix(format[at:], "{{") || strings.HasPrefix(format[at:], "}}") {
			b.add(format[at : at+1])
			format = format[at+2:]
			continue
		}
		field, rest, found := strings.Cut(format[at+1:], "}")
		if format[at] == '}' || !found {
			r.wrong("unmatched brace in a format")
		}
		b.add(r.text(r.braceField(field, g, &next)))
		format = rest
	}
	return b.String()
}

// braceField returns the value of a field; next is the place of the next field without a name.
func (r *renderer) braceField(field string, g given, next *int) any {
	if strings.ContainsAny(field, ".[]:!{") {
		r.unsupported("the field {%.40s} of a format", field)
	}
	for i, name := range g.names {
		if name == field {
			return g.named[i]
		}
	}
	at := *next
	if field == "" {
		*next++
	} else {
		n, err := strconv.Atoi(field)
		if err != nil || *next > 0 || n < 0 {
			r.wrong("the field {%.40s} of a format", field)
		}
		at = n
	}
	if at >= len(g.placed) {
		r.wrong("a format has more fields than values")
	}
	return g.placed[at]
}

package chat

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWidth limits the width of a formatted value.
const maxWidth = 10_000

// placeholder is a conversion of the operator %: %(key)-05.2f.
type placeholder struct {
	key              string
	hasKey           bool
	left, zero, plus bool
	space, alternate bool
	prefix           string // prefix of the digits: 0x
	width, precision int    // -1: omitted
	verb             byte
}

// placeholderAt reads a placeholder after its %, and returns the text that follows it. star returns
// the next value, for *.
func (r *renderer) placeholderAt(text string, star func() int) (p placeholder, rest string) {
	p = placeholder{width: -1, precision: -1}
	if strings.HasPrefix(text, "(") {
		end := strings.IndexByte(text, ')')
		if end < 0 || strings.ContainsRune(text[1:end], '(') {
			r.wrong("a key of a format has no end")
		}
		p.key, p.hasKey, text = text[1:end], true, text[end+1:]
	}
	for ; text != "" && strings.IndexByte("-0+ #", text[0]) >= 0; text = text[1:] {
		p.left = p.left || text[0] == '-'
		p.zero = p.zero || text[0] == '0'
		p.plus = p.plus || text[0] == '+'
		p.space = p.space || text[0] == ' '
		p.alternate = p.alternate || text[0] == '#'
	}
	if strings.HasPrefix(text, "*") {
		if p.width, text = star(), text[1:]; p.width < 0 {
			p.left, p.width = true, -p.width
		}
	} else {
		p.width, text = r.formatNumber(text)
	}
	if strings.HasPrefix(text, ".*") {
		p.precision, text = max(star(), 0), text[2:]
	} else if strings.HasPrefix(text, ".") {
		p.precision, text = r.formatNumber(text[1:])
		p.precision = max(p.precision, 0)
	}
	if text != "" && strings.IndexByte("hlL", text[0]) >= 0 {
		text = text[1:]
	}
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

// formatted implements the operator % of strings.
func (r *renderer) formatted(format string, value any, escape bool) string {
	o := operands{r: r, of: value, values: []any{value}, single: true}
	if tuple, isList := value.(*list); isList && tuple.tuple {
		o.values, o.single = tuple.items, false
	}
	r.spend(len(format))
	b := r.buffer()
	for {
		text, rest, found := strings.Cut(format, "%")
		b.add(text)
		if !found {
			break
		}
		r.step(1)
		if after, isSign := strings.CutPrefix(rest, "%"); isSign {
			b.add("%")
			format = after
			continue
		}
		var p placeholder
		p, format = r.placeholderAt(rest, o.width)
		b.add(r.convert(p, o.next(p), escape))
	}
	o.finish()
	return b.String()
}

// operands are the values of the operator %.
type operands struct {
	r      *renderer
	of     any // the value after the operator
	values []any
	used   int
	single bool // of is not a tuple
}

// width returns the next value as the width of a different value, for *.
func (o *operands) width() int {
	if o.used >= len(o.values) || o.single {
		o.r.wrong("a format with * requires a tuple with its width")
	}
	n, isNumber := number(o.values[o.used])
	if o.used++; !isNumber {
		o.r.wrong("a format with a width of the type %s", typeName(o.values[o.used-1]))
	}
	if n > maxWidth || n < -maxWidth {
		o.r.tooMuch("a format of %d characters", n)
	}
	return int(n)
}

// next returns the value of a placeholder.
func (o *operands) next(p placeholder) any {
	if d, isDict := o.of.(*dict); p.hasKey && isDict {
		value, there := d.values[p.key]
		if !there {
			o.r.wrong("a format has the missing key %s", p.key)
		}
		o.used = len(o.values)
		return value
	}
	if o.used >= len(o.values) || p.hasKey {
		o.r.wrong("a format has more placeholders than values")
	}
	o.used++
	return o.values[o.used-1]
}

// finish refuses unused values, except a single value that has items, as Python does.
func (o *operands) finish() {
	switch v := o.of.(type) {
	case *dict, undefined:
		return
	case *list:
		if o.single {
			return
		}
	case *view:
		if v.kind == rangeType {
			return
		}
	}
	if o.used < len(o.values) {
		o.r.wrong("a format has fewer placeholders than values")
	}
}

// convert returns the text of one value of a format.
func (r *renderer) convert(p placeholder, value any, escape bool) string {
	var text string
	switch p.verb {
	case 's':
		if text = r.text(value); escape {
			text = string(r.escaped(value))
		}
	case 'r':
		b := r.buffer()
		if r.repr(b, value, 0); escape {
			text = string(r.escaped(b.String()))
		} else {
			text = b.String()
		}
	case 'a':
		if text = r.ascii(value); escape {
			r.unsupported("the format %%a of a safe string")
		}
	case 'c':
		if p.precision = -1; escape {
			r.wrong("the format %%c of a safe string")
		}
		text = r.convertCharacter(value)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return r.convertWhole(p, value, escape)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		return r.convertReal(p, value, escape)
	default:
		r.wrong("the format %%%c", p.verb)
	}
	if p.precision >= 0 {
		r.spend(4 * len(text))
		if all := []rune(text); len(all) > p.precision {
			text = string(all[:p.precision])
		}
	}
	p.zero = false
	return r.aligned(p, text)
}

// convertCharacter returns the character of a code, or a string of one character.
func (r *renderer) convertCharacter(value any) string {
	if text, isText := str(value); isText && utf8.RuneCountInString(text) == 1 {
		return text
	}
	n, isWhole := whole(value)
	if !isWhole {
		r.wrong("the format %%c of a value of the type %s", typeName(value))
	}
	return r.character(n)
}

func (r *renderer) convertReal(p placeholder, value any, escape bool) string {
	number, isNumber := r.real(value)
	if text, isText := str(value); escape && isText {
		number, isNumber = r.parseFloat(r.asciiDigits(text))
	}
	if !isNumber {
		r.wrong("the format %%%c of a value of the type %s", p.verb, typeName(value))
	}
	if p.precision < 0 {
		p.precision = 6
	}
	r.spend(400 + p.precision)
	return r.aligned(p, p.sign(math.Signbit(number))+realText(number, p.verb, p.precision, p.alternate))
}

func (r *renderer) convertWhole(p placeholder, value any, escape bool) string {
	n, isWhole := whole(value)
	decimal := strings.IndexByte("diu", p.verb) >= 0
	if f, isFloat := value.(float64); isFloat && decimal {
		n, isWhole = new(big.Int), true
		new(big.Float).SetFloat64(math.Trunc(f)).Int(n)
	}
	if text, isText := str(value); escape && isText && decimal {
		n, isWhole = parseInt(r.asciiDigits(text), 10)
	}
	if !isWhole || escape && !decimal {
		r.wrong("the format %%%c of a value of the type %s", p.verb, typeName(value))
	}
	base := map[byte]int{'x': 16, 'X': 16, 'o': 8}[p.verb]
	base = cmp.Or(base, 10)
	r.spend(n.BitLen())
	text := new(big.Int).Abs(n).Text(base)
	if p.verb == 'X' {
		text = strings.ToUpper(text)
	}
	if p.alternate && base != 10 {
		p.prefix = "0" + string(p.verb)
	}
	text = r.repeated("0", int64(p.precision-len(text))) + text
	return r.aligned(p, p.sign(n.Sign() < 0)+p.prefix+text)
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

// aligned pads a text to the width.
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
		sign, text = sign+p.prefix, strings.TrimPrefix(text, p.prefix)
		return sign + r.repeated("0", left) + text
	}
	return r.repeated(" ", left) + text
}

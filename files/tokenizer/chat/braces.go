package chat

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// braces implements str.format within the sandbox. The fields are {}, {0}, {name}, {name.field},
// {name[key]}, each with a conversion (!r) and a specification (:>5), which may contain fields.
type braces struct {
	r      *renderer
	given  given
	escape bool           // format of a safe string: escape the values
	values map[string]any // named arguments; nil before their first use
	next   int            // number of the next field without a name
	manual bool           // a field has a number, so every field must have a number or a name
}

// text returns a format with its fields replaced.
func (bs *braces) text(format string, depth int) string {
	if depth > 2 {
		bs.r.wrong("a format within a format within a format")
	}
	bs.r.spend(len(format))
	b := bs.r.buffer()
	for format != "" {
		bs.r.step(1)
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
		if format[at] == '}' {
			bs.r.wrong("unmatched brace in a format")
		}
		field, rest := bs.field(format[at+1:])
		b.add(bs.replaced(field, depth))
		format = rest
	}
	return b.String()
}

// field splits a format after the brace that ends its first field.
func (bs *braces) field(format string) (field, rest string) {
	depth, bracket := 1, false
	for i := range len(format) {
		switch c := format[i]; {
		case c == '[':
			bracket = true
		case c == ']':
			bracket = false
		case bracket:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return format[:i], format[i+1:]
			}
		}
	}
	bs.r.wrong("unmatched brace in a format")
	return "", ""
}

// parts splits a field into its name, its conversion and its specification.
func (bs *braces) parts(field string) (name, conversion, spec string) {
	end, bracket := len(field), false
	for i := range len(field) {
		c := field[i]
		switch {
		case c == '[':
			bracket = true
			continue
		case c == ']':
			bracket = false
			continue
		case bracket:
			continue
		case c == '{' || c == '}':
			bs.r.wrong("unexpected brace in the field {%.40s}", field)
		}
		if c == ':' || c == '!' {
			end = i
			break
		}
	}
	name, rest := field[:end], field[end:]
	if strings.HasPrefix(rest, "!") {
		_, n := utf8.DecodeRuneInString(rest[1:])
		if conversion = rest[1 : 1+n]; conversion == "" {
			bs.r.wrong("a field without its conversion")
		}
		if rest = rest[1+n:]; rest != "" && rest[0] != ':' {
			bs.r.wrong("unexpected text behind the conversion of the field {%.40s}", field)
		}
	}
	return name, conversion, strings.TrimPrefix(rest, ":")
}

// replaced returns the text of a field.
func (bs *braces) replaced(field string, depth int) string {
	name, conversion, spec := bs.parts(field)
	value := bs.value(name)
	switch conversion {
	case "":
	case "s":
		value = bs.r.text(value)
	case "r":
		b := bs.r.buffer()
		bs.r.repr(b, value, 0)
		value = b.String()
	case "a":
		value = bs.r.ascii(value)
	default:
		bs.r.wrong("the conversion !%s", conversion)
	}
	if strings.ContainsAny(spec, "{}") {
		spec = bs.text(spec, depth+1)
	} else if depth == 2 {
		bs.r.wrong("a format within a format within a format")
	}
	if !bs.escape {
		return bs.r.inFormat(value, spec)
	}
	if safe, isSafe := value.(markup); isSafe {
		if spec != "" {
			bs.r.wrong("the format %.40q of a safe string", spec)
		}
		return string(safe)
	}
	return string(bs.r.escaped(bs.r.inFormat(value, spec)))
}

// value returns the value of a field: an argument, or one of its attributes or items.
func (bs *braces) value(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	value := bs.argument(name[:end], end < len(name))
	for rest := name[end:]; rest != ""; {
		bs.r.step(1)
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			if end == 1 {
				bs.r.wrong("an empty attribute in the field {%.40s}", name)
			}
			value, rest = bs.r.attribute(value, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end <= 1 {
			bs.r.wrong("the field {%.40s}", name)
		}
		var key any = rest[1:end]
		if n, isPlace := bs.place(rest[1:end]); isPlace {
			key = n
		}
		value, rest = bs.r.item(value, key), rest[end+1:]
	}
	return value
}

// place reads a number. It refuses numbers that Python and this program would read differently.
func (bs *braces) place(text string) (n int64, isPlace bool) {
	if !every(text, decimalRune) {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		bs.r.unsupported("the number %.40s in a format", text)
	}
	return n, true
}

func decimalRune(c rune) bool { _, isDecimal := decimalValue(c); return isDecimal }

// argument returns the argument that a field names.
func (bs *braces) argument(name string, more bool) any {
	at, isPlace := bs.place(name)
	switch {
	case name == "" && more:
		bs.r.unsupported("a field of a format without a name, but with an attribute or an item")
	case name == "" && bs.manual, isPlace && bs.next > 0 && !more:
		bs.r.wrong("a format with both numbered and unnumbered fields")
	case name == "":
		at = int64(bs.next)
		bs.next++
	case isPlace:
		bs.manual = bs.manual || !more
	default:
		if value, found := bs.named(name); found {
			return value
		}
		bs.r.wrong("a format has the missing key %.40s", name)
	}
	if at >= int64(len(bs.given.placed)) {
		bs.r.wrong("a format has more fields than values")
	}
	return bs.given.placed[at]
}

// named returns the named argument with a name.
func (bs *braces) named(name string) (value any, found bool) {
	if bs.values == nil {
		bs.values = map[string]any{}
		for i, name := range bs.given.names {
			bs.r.spend(32)
			bs.values[name] = bs.given.named[i]
		}
	}
	value, found = bs.values[name]
	return value, found
}

// formatMap implements str.format_map.
func (r *renderer) formatMap(text string, g given, escape bool) string {
	values := g.one()
	d, isDict := values.(*dict)
	if !isDict {
		r.unsupported("format_map with a value of the type %s", typeName(values))
	}
	inner := given{r: r, call: g.call}
	for i, key := range d.keys {
		if name, isText := str(key); isText {
			r.spend(32)
			inner.names, inner.named = append(inner.names, name), append(inner.named, d.values[d.hashes[i]])
		}
	}
	f := &braces{r: r, given: inner, escape: escape}
	return f.text(text, 0)
}

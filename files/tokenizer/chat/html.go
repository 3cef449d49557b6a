package chat

import (
	"html"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// xmlattrFilter implements the filter xmlattr, which writes a dict as attributes of a tag.
func xmlattrFilter(r *renderer, of any, g given) any {
	args := g.bind("autospace")
	d, isDict := of.(*dict)
	if !isDict {
		r.wrong("xmlattr of a value of the type %s, want a dict", typeName(of))
	}
	var parts []any
	for i, key := range d.keys {
		value := d.values[d.hashes[i]]
		if _, isUndefined := value.(undefined); isUndefined || value == nil {
			continue
		}
		name := g.text(key)
		if strings.ContainsAny(name, " \t\n\r\f\v/>=") {
			r.wrong("the name %.40q of an attribute", name)
		}
		r.spend(32)
		parts = append(parts, string(r.escaped(key))+`="`+string(r.escaped(value))+`"`)
	}
	text := r.joined(parts, " ")
	if text != "" && truth(or(args[0], true)) {
		text = " " + text
	}
	if r.escape {
		return markup(text)
	}
	return text
}

// striptagsFilter implements the filter striptags: it removes comments and tags, collapses spaces,
// and replaces entities by characters.
func striptagsFilter(r *renderer, of any, g given) any {
	g.bind()
	text := r.text(of)
	r.spend(4 * len(text))
	return unescaped(strings.Join(strings.FieldsFunc(withoutTags(text), isSpace), " "))
}

// withoutTags removes tags and comments up to the first tag or comment without an end.
func withoutTags(text string) string {
	var kept strings.Builder
	for {
		start := strings.IndexByte(text, '<')
		if start < 0 {
			break
		}
		begin, end := "<", ">"
		if strings.HasPrefix(text[start:], "<!--") {
			begin, end = "<!--", "-->"
		}
		size := strings.Index(text[start+len(begin):], end)
		if size < 0 {
			break
		}
		kept.WriteString(text[:start])
		text = text[start+len(begin)+size+len(end):]
	}
	kept.WriteString(text)
	return kept.String()
}

// entity is a reference to a character of HTML.
var entity = regexp.MustCompile(`&(#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)`)

// windowsCharacters are the characters of the codes 0x80 to 0x9f; 0 means the code itself.
var windowsCharacters = []rune("\u20ac\x00\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\x00\u017d\x00\x00\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\x00\u017e\u0178")

// unescaped implements Python's html.unescape.
func unescaped(text string) string {
	return entity.ReplaceAllStringFunc(text, func(reference string) string {
		if reference[1] != '#' {
			return html.UnescapeString(reference)
		}
		digits, base := strings.TrimSuffix(reference[2:], ";"), 10
		if digits[0]|0x20 == 'x' {
			digits, base = digits[1:], 16
		}
		code, err := strconv.ParseInt(digits, base, 64)
		switch {
		case err != nil, code > 0x10ffff, code >= 0xd800 && code <= 0xdfff, code == 0:
			return "\ufffd"
		case code >= 0x80 && code <= 0x9f:
			if c := windowsCharacters[code-0x80]; c != 0 {
				return string(c)
			}
			return string(rune(code))
		case code == '\r':
			return "\r"
		case invalidCode(code):
			return ""
		}
		return string(rune(code))
	})
}

// invalidCode reports whether a code is not a character of HTML.
func invalidCode(code int64) bool {
	return code >= 1 && code <= 8 || code == 0xb || code >= 0xe && code <= 0x1f || code >= 0x7f && code <= 0x9f ||
		code >= 0xfdd0 && code <= 0xfdef || code&0xfffe == 0xfffe
}

// filesizeFilter implements the filter filesizeformat.
func filesizeFilter(r *renderer, of any, g given) any {
	binary := truth(or(g.bind("binary")[0], false))
	size, isNumber := r.real(of)
	if text, isText := str(of); isText {
		size, isNumber = r.parseFloat(r.asciiDigits(text))
	}
	if !isNumber {
		r.wrong("filesizeformat of a value of the type %s", typeName(of))
	}
	base, suffix := int64(1000), "B"
	if binary {
		base, suffix = 1024, "iB"
	}
	switch {
	case size == 1:
		return "1 Byte"
	case size < float64(base):
		n, _ := new(big.Float).SetFloat64(size).Int(nil)
		return r.decimal(n) + " Bytes"
	}
	unit := big.NewInt(base)
	prefixes := "kMGTPEZY"
	if binary {
		prefixes = "KMGTPEZY"
	}
	for i := range len(prefixes) {
		unit = new(big.Int).Mul(unit, big.NewInt(base))
		if order, _ := compareNumbers(size, newInt(unit)); order < 0 || i == len(prefixes)-1 {
			divisor, _ := r.real(newInt(unit))
			return strconv.FormatFloat(float64(base)*size/divisor, 'f', 1, 64) + " " + prefixes[i:i+1] + suffix
		}
	}
	return nil
}

// groupbyFilter implements the filter groupby: tuples of a value and the items with this value, in
// the order of the values.
func groupbyFilter(r *renderer, of any, g given) any {
	args := g.bind("attribute", "default", "case_sensitive")
	path, byDefault := g.need(args[0]), or(args[1], nil)
	exact := truth(or(args[2], false))
	items := r.cloned(of)
	items = r.arranged(items, items, r.getter(path, byDefault, exact), false)
	key, shown := r.getter(path, byDefault, exact), r.getter(path, byDefault, true)
	var groups []any
	var now *list // items of the last group
	var before any
	for _, item := range items {
		r.spend(64)
		next := key(item)
		if now == nil || !r.equal(before, next, 0) {
			now = &list{}
			groups = append(groups, &list{items: []any{shown(item), now}, tuple: true, group: true})
		}
		before = next
		now.items = append(now.items, item)
	}
	return &list{items: slices.Clip(groups)}
}

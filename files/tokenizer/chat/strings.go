package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stringMethod calls a method of str.
func (r *renderer) stringMethod(text, name string, g given) any {
	r.spend(len(text))
	switch name {
	case "strip", "lstrip", "rstrip":
		return r.stripped(text, or(g.bind("")[0], nil), g, name)
	case "startswith", "endswith":
		return r.affixed(text, name, g)
	case "removeprefix":
		return strings.TrimPrefix(text, g.text(g.one()))
	case "removesuffix":
		return strings.TrimSuffix(text, g.text(g.one()))
	case "split", "rsplit":
		return r.split(text, name, g)
	case "splitlines":
		r.spend(32 * len(text))
		return &list{items: lines(text, truth(or(g.bind("keepends")[0], false)))}
	case "partition", "rpartition":
		return r.partition(text, name, g)
	case "replace":
		args := g.bind("", "", "")
		return r.replaced(text, g.text(args[0]), g.text(args[1]), g.whole(or(args[2], int64(-1))))
	case "join":
		items := r.each(g.one())
		for _, item := range items {
			if _, isText := str(item); !isText {
				r.wrong("join of a value of the type %s", typeName(item))
			}
		}
		return r.joined(items, text)
	case "find", "rfind", "index", "rindex", "count":
		return r.found(text, name, g)
	case "zfill", "ljust", "rjust", "center":
		return r.padded(text, name, g)
	case "format":
		f := &braces{r: r, given: g}
		return f.text(text, 0)
	case "format_map":
		return r.formatMap(text, g, false)
	case "expandtabs":
		return r.expanded(text, g.whole(or(g.bind("tabsize")[0], int64(8))))
	case "translate":
		return r.translated(text, g.one())
	case "maketrans":
		return r.translation(g)
	}
	if change, found := letterMethods[name]; found {
		g.bind()
		return change(r, text)
	}
	if holds, found := characterMethods[name]; found {
		g.bind()
		return holds(r, text)
	}
	r.unsupported("the method %s of strings", name) // encode: templates have no bytes
	return nil
}

var letterMethods = map[string]func(*renderer, string) string{
	"upper": (*renderer).upper, "lower": (*renderer).lower, "capitalize": (*renderer).capitalized,
	"title": (*renderer).titled, "swapcase": (*renderer).swapped, "casefold": (*renderer).folded,
}

func (r *renderer) stripped(text string, chars any, g given, name string) string {
	cut := isSpace
	if chars != nil {
		r.spend(32 * len(g.text(chars)))
		set := runeSet(g.text(chars))
		cut = func(c rune) bool { r.step(1); return set[c] }
	}
	if name != "rstrip" {
		text = strings.TrimLeftFunc(text, cut)
	}
	if name != "lstrip" {
		text = strings.TrimRightFunc(text, cut)
	}
	return text
}

// affixed implements startswith and endswith, for one text or a tuple.
func (r *renderer) affixed(text, name string, g given) bool {
	args := g.bind("", "", "")
	text, there := r.part(text, args[1:], g)
	affixes := []any{g.need(args[0])}
	if several, isList := args[0].(*list); isList && several.tuple {
		affixes = several.items
	}
	is := map[string]func(string, string) bool{"startswith": strings.HasPrefix, "endswith": strings.HasSuffix}[name]
	return slices.ContainsFunc(affixes, func(affix any) bool {
		r.step(1)
		part := g.text(affix)
		r.spend(min(len(part), len(text)))
		return there && is(text, part)
	})
}

// part returns the part of a text between two indices. there is false if the part begins after the
// end of the text.
func (r *renderer) part(text string, bounds []any, g given) (part string, there bool) {
	from, to := or(bounds[0], nil), or(bounds[1], nil)
	if from == nil && to == nil {
		return text, true
	}
	r.spend(4 * len(text))
	all := []rune(text)
	n := int64(len(all))
	place := func(value any, byDefault int64) int64 {
		if value == nil {
			return byDefault
		}
		at := g.whole(value)
		if at < 0 {
			at = max(at+n, 0)
		}
		return at
	}
	first, last := place(from, 0), min(place(to, n), n)
	if first > n || first > last {
		return "", false
	}
	return string(all[first:last]), true
}

func (r *renderer) split(text, name string, g given) *list {
	args := g.bind("sep", "maxsplit")
	limit := g.whole(or(args[1], int64(-1)))
	r.spend(32 * len(text))
	var parts []string
	separator := or(args[0], nil)
	switch {
	case separator == nil && name == "split":
		parts = fields(text, limit)
	case separator == nil:
		parts = fieldsFromEnd(text, limit)
	default:
		between := g.text(separator)
		if between == "" {
			r.wrong("%s with an empty separator", name)
		}
		if name == "rsplit" {
			parts = partsFromEnd(text, between, limit)
		} else if parts = strings.Split(text, between); limit >= 0 && int64(len(parts)) > limit+1 {
			keep := int(limit)
			parts = append(parts[:keep:keep], strings.Join(parts[keep:], between))
		}
	}
	return &list{items: items(parts)}
}

func items(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// fields splits at spaces. The argument limit limits the number of splits; a negative value means no
// limit. The last part keeps its trailing spaces.
func fields(text string, limit int64) (parts []string) {
	text = strings.TrimLeftFunc(text, isSpace)
	for text != "" && limit != 0 {
		end := strings.IndexFunc(text, isSpace)
		if end < 0 {
			break
		}
		parts = append(parts, text[:end])
		text = strings.TrimLeftFunc(text[end:], isSpace)
		limit--
	}
	if text != "" {
		parts = append(parts, text)
	}
	return parts
}

// partsFromEnd splits at a separator from the end of the text. The argument limit limits the number
// of splits; a negative value means no limit. If separators overlap, the last separator counts.
func partsFromEnd(text, between string, limit int64) (parts []string) {
	for ; limit != 0; limit-- {
		at := strings.LastIndex(text, between)
		if at < 0 {
			break
		}
		parts = append(parts, text[at+len(between):])
		text = text[:at]
	}
	parts = append(parts, text)
	slices.Reverse(parts)
	return parts
}

// fieldsFromEnd is fields from the end of the text.
func fieldsFromEnd(text string, limit int64) (parts []string) {
	text = strings.TrimRightFunc(text, isSpace)
	for text != "" && limit != 0 {
		space := strings.LastIndexFunc(text, isSpace)
		if space < 0 {
			break
		}
		_, size := utf8.DecodeRuneInString(text[space:])
		parts = append(parts, text[space+size:])
		text = strings.TrimRightFunc(text[:space], isSpace)
		limit--
	}
	if text != "" {
		parts = append(parts, text)
	}
	slices.Reverse(parts)
	return parts
}

// endsLine reports whether a character ends a line for str.splitlines.
func endsLine(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// lines implements str.splitlines.
func lines(text string, keep bool) (all []any) {
	for text != "" {
		end := strings.IndexFunc(text, endsLine)
		if end < 0 {
			return append(all, text)
		}
		_, size := utf8.DecodeRuneInString(text[end:])
		if strings.HasPrefix(text[end:], "\r\n") {
			size = 2
		}
		if keep {
			all = append(all, text[:end+size])
		} else {
			all = append(all, text[:end])
		}
		text = text[end+size:]
	}
	return all
}

func (r *renderer) partition(text, name string, g given) *list {
	between := g.text(g.one())
	if between == "" {
		r.wrong("%s with an empty separator", name)
	}
	at, missing := strings.Index(text, between), []any{text, "", ""}
	if name == "rpartition" {
		at, missing = strings.LastIndex(text, between), []any{"", "", text}
	}
	if at < 0 {
		return tupleOf(missing...)
	}
	return tupleOf(text[:at], between, text[at+len(between):])
}

func (r *renderer) replaced(text, from, to string, limit int64) string {
	count := strings.Count(text, from)
	if limit >= 0 {
		count = int(min(int64(count), limit))
	}
	if len(to) > 0 && count > maxWork/len(to) {
		r.tooMuch("a text of %d replacements", count)
	}
	r.spend(len(text) + count*len(to))
	return strings.Replace(text, from, to, count)
}

func (r *renderer) joined(items []any, between string) string {
	b := r.buffer()
	for i, item := range items {
		if i > 0 {
			b.add(between)
		}
		b.add(r.text(item))
	}
	return b.String()
}

// found implements find, index and count, forwards and backwards.
func (r *renderer) found(text, name string, g given) int64 {
	args := g.bind("", "", "")
	part := g.text(args[0])
	within, there := r.part(text, args[1:], g)
	if name == "count" {
		if !there {
			return 0
		}
		return int64(strings.Count(within, part))
	}
	find := strings.Index
	if name[0] == 'r' {
		find = strings.LastIndex
	}
	at := -1
	if there {
		at = find(within, part)
	}
	switch {
	case at < 0 && strings.HasSuffix(name, "index"):
		r.wrong("%s of a missing text", name)
	case at < 0:
		return -1
	}
	at = utf8.RuneCountInString(within[:at])
	if from := or(args[1], nil); from != nil {
		before := g.whole(from)
		if before < 0 {
			before = max(before+int64(utf8.RuneCountInString(text)), 0)
		}
		at += int(before)
	}
	return int64(at)
}

func (r *renderer) padded(text, name string, g given) string {
	fill := " "
	var width int64
	if name == "zfill" {
		fill, width = "0", g.whole(g.one())
	} else {
		args := g.bind("", "")
		width, fill = g.whole(args[0]), g.text(or(args[1], fill))
	}
	if utf8.RuneCountInString(fill) != 1 {
		r.wrong("%s with a filling of %d characters, want 1", name, utf8.RuneCountInString(fill))
	}
	left := max(width-int64(utf8.RuneCountInString(text)), 0)
	switch name {
	case "ljust":
		return text + r.repeated(fill, left)
	case "center":
		before := left/2 + left&width&1
		return r.repeated(fill, before) + text + r.repeated(fill, left-before)
	case "zfill":
		if text != "" && (text[0] == '+' || text[0] == '-') {
			return text[:1] + r.repeated(fill, left) + text[1:]
		}
	}
	return r.repeated(fill, left) + text
}

// characterMethods are the methods that classify a text.
var characterMethods = map[string]func(r *renderer, text string) bool{
	"isspace":   func(_ *renderer, text string) bool { return every(text, isSpace) },
	"isalpha":   func(_ *renderer, text string) bool { return every(text, unicode.IsLetter) },
	"isdecimal": func(_ *renderer, text string) bool { return every(text, unicode.IsDigit) },
	"isalnum": func(_ *renderer, text string) bool {
		return every(text, func(c rune) bool { return unicode.IsLetter(c) || isNumericRune(c) })
	},
	"isdigit":      func(_ *renderer, text string) bool { return every(text, isDigitRune) },
	"isnumeric":    func(_ *renderer, text string) bool { return every(text, isNumericRune) },
	"isidentifier": func(_ *renderer, text string) bool { return isIdentifier(text) },
	"isprintable":  (*renderer).isPrintable,
	"istitle":      func(_ *renderer, text string) bool { return isTitle(text) },
	"isascii": func(_ *renderer, text string) bool {
		return text == "" || every(text, func(c rune) bool { return c < utf8.RuneSelf })
	},
	"islower": func(_ *renderer, text string) bool {
		return allCased(text, unicode.Lu, unicode.Lt, unicode.Other_Uppercase)
	},
	"isupper": func(_ *renderer, text string) bool {
		return allCased(text, unicode.Ll, unicode.Lt, unicode.Other_Lowercase)
	},
}

func every(text string, holds func(rune) bool) bool {
	return text != "" && strings.IndexFunc(text, func(c rune) bool { return !holds(c) }) < 0
}

// allCased reports whether a text has a letter with the given case, and no letter with the other
// case.
func allCased(text string, others ...*unicode.RangeTable) bool {
	return strings.IndexFunc(text, cased) >= 0 && strings.IndexFunc(text, func(c rune) bool { return unicode.In(c, others...) }) < 0
}

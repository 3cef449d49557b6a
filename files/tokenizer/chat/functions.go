package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// given are the arguments of a function, a filter or a method.
type given struct {
	r      *renderer
	what   string
	placed []any
	names  []string
	named  []any
}

func (g given) one() any {
	g.upTo(1)
	if len(g.placed) != 1 {
		g.r.wrong("%s needs one argument", g.what)
	}
	return g.placed[0]
}

// upTo refuses more arguments than so many, and such with other names.
func (g given) upTo(n int, names ...string) {
	for _, name := range g.names {
		if !slices.Contains(names, name) {
			g.r.unsupported("%s with the argument %s", g.what, name)
		}
	}
	if len(g.placed) > n {
		g.r.unsupported("%s with %d arguments", g.what, len(g.placed))
	}
}

// get returns the argument of a place or a name.
func (g given) get(at int, name string, byDefault any) any {
	if i := slices.Index(g.names, name); i >= 0 {
		return g.named[i]
	}
	if at < len(g.placed) {
		return g.placed[at]
	}
	return byDefault
}

func (g given) text(at int) string {
	if at >= len(g.placed) {
		g.r.wrong("%s needs %d arguments", g.what, at+1)
	}
	text, isText := g.placed[at].(string)
	if !isText {
		g.r.wrong("%s of a value of the type %s", g.what, typeName(g.placed[at]))
	}
	return text
}

// pythonNames are the names that values of Python have, and that are no keys.
var pythonNames = map[string][]string{
	"str":  strings.Fields("capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill"),
	"list": strings.Fields("append clear copy count extend index insert pop remove reverse sort"), "tuple": {"count", "index"},
	"dict":  strings.Fields("clear copy fromkeys get items keys pop popitem setdefault update values"),
	"int":   strings.Fields("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes"),
	"float": strings.Fields("as_integer_ratio conjugate fromhex from_number hex imag is_integer real"),
	"bool":  strings.Fields("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes"),
}

// attribute is value.name.
func (r *renderer) attribute(of any, name string) any {
	if strings.HasPrefix(name, "_") {
		r.unsupported("the attribute %s", name)
	}
	if slices.Contains(pythonNames[typeName(of)], name) {
		return method{of, name}
	}
	switch v := of.(type) {
	case undefined:
		r.wrong("%s is undefined, so it has no %s", v.what, name)
	case *dict:
		if value, there := v.values[name]; there {
			return value
		}
	case *namespace:
		if value, there := v.fields.values[name]; there {
			return value
		}
	case *loop:
		return r.loopField(v, name)
	case nil, string, *list, int64, float64, bool:
	default:
		r.unsupported("the attribute %s of a value of the type %s", name, typeName(of))
	}
	return undefined{name}
}

func (r *renderer) loopField(l *loop, name string) any {
	n, at := int64(len(l.items)), int64(l.at)
	neighbour := func(at int64) any {
		if at < 0 || at >= n {
			return undefined{"loop." + name}
		}
		return l.items[at]
	}
	switch name {
	case "index":
		return at + 1
	case "index0":
		return at
	case "revindex":
		return n - at
	case "revindex0":
		return n - at - 1
	case "first":
		return at == 0
	case "last":
		return at == n-1
	case "length":
		return n
	case "previtem":
		return neighbour(at - 1)
	case "nextitem":
		return neighbour(at + 1)
	}
	r.unsupported("loop.%s", name)
	return nil
}

func (r *renderer) ascii(text, what string) {
	r.spend(len(text))
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			r.unsupported("%s of letters that are not ASCII", what)
		}
	}
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.ToLower(text[1:])
}

func (r *renderer) stripped(text string, g given, left, right bool) string {
	g.upTo(1, "chars")
	r.spend(len(text))
	cut := isSpace
	if chars := g.get(0, "chars", nil); chars != nil {
		set, isText := chars.(string)
		if !isText {
			r.wrong("%s of a value of the type %s", g.what, typeName(chars))
		}
		r.step(len(set))
		cut = func(c rune) bool { r.step(1); return strings.ContainsRune(set, c) }
	}
	if left {
		text = strings.TrimLeftFunc(text, cut)
	}
	if right {
		text = strings.TrimRightFunc(text, cut)
	}
	return text
}

func (r *renderer) replaced(text string, g given) string {
	g.upTo(2)
	from, to := g.text(0), g.text(1)
	r.spend(len(text) + strings.Count(text, from)*len(to))
	return strings.ReplaceAll(text, from, to)
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

func (r *renderer) method(m method, g given) any {
	switch v := m.of.(type) {
	case string:
		return r.stringMethod(v, m.name, g)
	case *dict:
		switch m.name {
		case "get":
			g.upTo(2)
			if value, there := v.values[g.text(0)]; there {
				return value
			}
			return g.get(1, "", nil)
		case "items", "keys", "values":
			g.upTo(0)
			r.spend(64 * len(v.keys))
			var all []any
			for _, key := range v.keys {
				all = append(all, map[string]any{"items": &list{[]any{key, v.values[key]}, true}, "keys": key, "values": v.values[key]}[m.name])
			}
			return &view{all}
		}
	}
	r.unsupported("%s of a value of the type %s", g.what, typeName(m.of))
	return nil
}

func (r *renderer) stringMethod(text, name string, g given) any {
	switch name {
	case "strip", "lstrip", "rstrip":
		if len(g.names) > 0 {
			r.unsupported("%s with names", g.what)
		}
		return r.stripped(text, g, name != "rstrip", name != "lstrip")
	case "startswith", "endswith":
		g.upTo(1)
		r.spend(len(g.text(0)))
		if name == "startswith" {
			return strings.HasPrefix(text, g.text(0))
		}
		return strings.HasSuffix(text, g.text(0))
	case "removeprefix":
		g.upTo(1)
		return strings.TrimPrefix(text, g.text(0))
	case "removesuffix":
		g.upTo(1)
		return strings.TrimSuffix(text, g.text(0))
	case "split":
		g.upTo(1)
		r.spend(32 * len(text))
		parts := strings.FieldsFunc(text, isSpace)
		if len(g.placed) > 0 && g.placed[0] != nil {
			if g.text(0) == "" {
				r.wrong("split at an empty string")
			}
			parts = strings.Split(text, g.text(0))
		}
		var all []any
		for _, part := range parts {
			all = append(all, part)
		}
		return &list{items: all}
	case "replace":
		return r.replaced(text, g)
	case "upper", "lower", "capitalize":
		g.upTo(0)
		r.ascii(text, g.what)
		return map[string]func(string) string{"upper": strings.ToUpper, "lower": strings.ToLower, "capitalize": capital}[name](text)
	case "join":
		items := r.each(g.one())
		for _, item := range items {
			if _, isText := item.(string); !isText {
				r.wrong("join of a value of the type %s", typeName(item))
			}
		}
		return r.joined(items, text)
	}
	r.unsupported("%s of strings", g.what)
	return nil
}

func (r *renderer) filter(name string, of any, g given) any {
	switch name {
	case "trim":
		return r.stripped(r.text(of), g, true, true)
	case "upper", "lower", "capitalize":
		return r.stringMethod(r.text(of), name, g)
	case "replace":
		return r.replaced(r.text(of), g)
	case "string":
		g.upTo(0)
		return r.text(of)
	case "default", "d":
		g.upTo(2, "default_value", "boolean")
		if _, isUndefined := of.(undefined); isUndefined || truth(g.get(1, "boolean", false)) && !truth(of) {
			return g.get(0, "default_value", "")
		}
		return of
	case "length", "count":
		g.upTo(0)
		n, found := length(of)
		if !found {
			r.wrong("a value of the type %s has no length", typeName(of))
		}
		return int64(n)
	case "join":
		g.upTo(1, "d")
		return r.joined(r.each(of), r.text(g.get(0, "d", "")))
	case "list":
		g.upTo(0)
		return &list{items: slices.Clone(r.each(of))}
	case "items":
		g.upTo(0)
		if d, isDict := of.(*dict); isDict {
			return &iterator{r.method(method{d, "items"}, g).(*view).items}
		}
	case "first", "last":
		g.upTo(0)
		items := r.each(of)
		switch {
		case len(items) == 0:
			return undefined{"of nothing the " + name}
		case name == "first":
			return items[0]
		}
		return items[len(items)-1]
	case "tojson":
		g.upTo(0, "indent", "ensure_ascii")
		indent, isNumber := g.get(0, "indent", int64(-1)).(int64)
		if !isNumber || indent > 16 || g.get(0, "ensure_ascii", false) != false {
			r.unsupported("tojson with these arguments")
		}
		b := r.buffer()
		r.json(b, of, layout{int(indent)}, 0)
		return b.String()
	case "int", "float", "abs", "round":
		return r.numeric(name, of, g)
	case "selectattr", "rejectattr", "map":
		return r.attributes(name, of, g)
	}
	r.unsupported("the filter %s", name)
	return nil
}

// numeric are the filters of numbers.
func (r *renderer) numeric(name string, of any, g given) any {
	g.upTo(1, "precision")
	whole, isWhole := number(of)
	value, isNumber := r.real(of)
	precision, isPlace := g.get(0, "precision", int64(0)).(int64)
	switch {
	case !isNumber || len(g.names)+len(g.placed) > 0 && name != "round" || !isPlace || precision < 0 || precision > 16:
		r.unsupported("%s of a value of the type %s with these arguments", g.what, typeName(of))
	case name == "float":
		return value
	case name == "int" && !isWhole && math.Abs(value) > 1<<53:
		r.unsupported("numbers beyond %d", int64(1)<<53)
	case name == "int" && !isWhole:
		return int64(value)
	case name == "abs" && isWhole:
		return max(whole, -whole)
	case name == "abs":
		return math.Abs(value)
	case isWhole:
		return whole
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'f', int(precision), 64), 64)
	if err != nil {
		r.unsupported("%s of this number", g.what)
	}
	return rounded
}

// attributes are the filters that look at one field of each item.
func (r *renderer) attributes(name string, of any, g given) any {
	var chosen []any
	items := r.each(of)
	if name == "map" {
		g.upTo(0, "attribute")
		g.placed = []any{g.get(0, "attribute", nil)}
	} else {
		g.upTo(3)
	}
	key := g.text(0)
	if strings.Contains(key, ".") {
		r.unsupported("a path of attributes in %s", g.what)
	}
	for _, item := range items {
		value := r.item(item, key)
		if name == "map" {
			chosen = append(chosen, value)
			continue
		}
		holds := truth(value)
		if len(g.placed) > 1 {
			holds = r.test(g.text(1), value, g.placed[2:])
		}
		if holds == (name == "selectattr") {
			chosen = append(chosen, item)
		}
	}
	return &iterator{chosen}
}

func (r *renderer) test(name string, of any, args []any) bool {
	kind := typeName(of)
	if operator := map[string]string{"equalto": "==", "eq": "==", "==": "==", "ne": "!=", "!=": "!=", "in": "in", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}[name]; operator != "" {
		if len(args) != 1 {
			r.wrong("the test %s needs one argument", name)
		}
		return r.compare(operator, of, args[0])
	}
	if len(args) > 0 {
		r.unsupported("the test %s with arguments", name)
	}
	_, isCounted := length(of)
	switch name {
	case "defined":
		return kind != "undefined"
	case "undefined":
		return kind == "undefined"
	case "none":
		return of == nil
	case "string":
		return kind == "str"
	case "mapping":
		return kind == "dict"
	case "boolean":
		return kind == "bool"
	case "true", "false":
		return of == (name == "true")
	case "integer":
		return kind == "int"
	case "float":
		return kind == "float"
	case "number":
		return kind == "int" || kind == "bool" || kind == "float"
	case "iterable":
		return isCounted || kind == "iterator"
	case "sequence":
		if kind == "view of a dict" || kind == "loop" {
			r.unsupported("the test sequence of a value of the type %s", kind)
		}
		return isCounted
	case "odd", "even":
		if n, isNumber := number(of); isNumber {
			return (n%2 == 0) == (name == "even")
		}
	}
	r.unsupported("the test %s of a value of the type %s", name, kind)
	return false
}

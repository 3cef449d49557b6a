package chat

import (
	"slices"
	"strings"
)

// A filterFunc computes a filter.
type filterFunc func(r *renderer, of any, g given) any

// filters are the filters of jinja2 by their names, except random. init sets them, because some
// filters find others in this table.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		// Lists, dicts and other values.
		"default": defaultFilter, "d": defaultFilter, "length": lengthFilter, "count": lengthFilter, "join": joinFilter,
		"items": itemsFilter, "first": firstFilter, "last": lastFilter, "reverse": reverseFilter, "sort": sortFilter,
		"dictsort": dictsortFilter, "unique": uniqueFilter, "batch": batchFilter, "slice": sliceFilter, "attr": attrFilter,
		"groupby": groupbyFilter, "pprint": prettyFilter, "tojson": (*renderer).tojson, "map": mapFilter,
		"list": plain(func(r *renderer, of any) any { return &list{items: r.cloned(of)} }),

		// Numbers.
		"int": intFilter, "float": floatFilter, "abs": absFilter, "round": roundFilter, "filesizeformat": filesizeFilter, "sum": sumFilter,

		// Texts.
		"replace": replaceFilter, "indent": indentFilter, "truncate": truncateFilter, "trim": trimFilter, "center": centerFilter,
		"format": formatFilter, "wordcount": wordcountFilter, "wordwrap": wordwrapFilter,
		"title":  plain(func(r *renderer, of any) any { return r.titleFilter(r.text(of)) }),
		"string": plain(func(r *renderer, of any) any { return like(of, r.text(of)) }),

		// HTML and URLs.
		"urlencode": urlencodeFilter, "urlize": urlizeFilter, "xmlattr": xmlattrFilter, "striptags": striptagsFilter,
		"safe":        plain(func(r *renderer, of any) any { return markup(r.text(of)) }),
		"escape":      plain(func(r *renderer, of any) any { return r.escaped(of) }),
		"forceescape": plain(func(r *renderer, of any) any { return r.escaped(r.text(of)) }),
	}
	filters["e"] = filters["escape"]
	for _, name := range []string{"upper", "lower", "capitalize"} {
		filters[name] = plain(func(r *renderer, of any) any { return like(of, letterMethods[name](r, r.text(of))) })
	}
	for _, name := range []string{"min", "max"} {
		filters[name] = func(r *renderer, of any, g given) any { return r.extreme(name, of, g) }
	}
	for _, name := range []string{"select", "reject", "selectattr", "rejectattr"} {
		filters[name] = func(r *renderer, of any, g given) any {
			return r.lazy(func() func() (any, bool) { return r.chosen(name, of, g) })
		}
	}
}

// plain returns a filter without arguments.
func plain(compute func(r *renderer, of any) any) filterFunc {
	return func(r *renderer, of any, g given) any {
		g.bind()
		return compute(r, of)
	}
}

// knownFilter reports whether name is a filter of jinja2. Templates with an unknown filter are not valid.
func knownFilter(name string) bool { return name == "random" || filters[name] != nil }

func (r *renderer) filter(name string, of any, g given) any {
	if compute := filters[name]; compute != nil {
		return compute(r, of, g)
	}
	if name == "random" {
		r.unsupported("the filter random, whose result is random")
	}
	r.wrong("unknown filter %s", name)
	return nil
}

func defaultFilter(_ *renderer, of any, g given) any {
	args := g.bind("default_value", "boolean")
	if _, isUndefined := of.(undefined); isUndefined || truth(or(args[1], false)) && !truth(of) {
		return or(args[0], "")
	}
	return of
}

func lengthFilter(r *renderer, of any, g given) any {
	g.bind()
	r.read(of)
	n, found := length(of)
	if !found {
		r.wrong("a value of type %s has no length", typeName(of))
	}
	return int64(n)
}

func joinFilter(r *renderer, of any, g given) any {
	args := g.bind("d", "attribute")
	items := r.each(of)
	if path := or(args[1], nil); path != nil {
		items = r.cloned(&list{items: items})
		get := r.getter(path, nil, true)
		for i := range items {
			items[i] = get(items[i])
		}
	}
	if r.escape {
		return r.joinedByFilter(items, or(args[0], ""))
	}
	return r.joined(items, r.text(or(args[0], "")))
}

func itemsFilter(r *renderer, of any, g given) any {
	g.bind()
	return r.lazy(func() func() (any, bool) {
		switch v := of.(type) {
		case undefined:
			return r.iterate(&list{})
		case *dict:
			return r.iterate(r.dictView(v, "items"))
		}
		r.wrong("items of a value of the type %s, want a dict", typeName(of))
		return nil
	})
}

// cloned returns a copy of the items of a value.
func (r *renderer) cloned(of any) []any {
	items := r.each(of)
	r.spend(16 * len(items))
	return slices.Clone(items)
}

// lazy returns an iterator that calls open when its first item is read. So the error of a filter
// ends a template only if the template reads the filter's result. Iterators that read from each
// other count like macros that call each other, and have the same limit.
func (r *renderer) lazy(open func() func() (any, bool)) *iterator {
	var next func() (any, bool)
	return &iterator{func() (any, bool) {
		r.enter()
		defer r.leave()
		if next == nil {
			next = open()
		}
		return next()
	}}
}

func firstFilter(r *renderer, of any, g given) any {
	g.bind()
	if item, found := r.iterate(of)(); found {
		return item
	}
	return undefined{"the first item of an empty list"}
}

func lastFilter(r *renderer, of any, g given) any {
	g.bind()
	if _, once := of.(*iterator); once {
		r.wrong("last of an iterator, which has no end")
	}
	items := r.each(of)
	if len(items) == 0 {
		return undefined{"the last item of an empty list"}
	}
	return items[len(items)-1]
}

func reverseFilter(r *renderer, of any, g given) any {
	g.bind()
	reversed := r.cloned(of)
	slices.Reverse(reversed)
	if _, isText := str(of); isText {
		return like(of, r.joined(reversed, ""))
	}
	if _, once := of.(*iterator); once {
		return &list{items: reversed}
	}
	return &iterator{r.iterate(&list{items: reversed})}
}

// attrFilter returns the attribute of a value, never an item.
func attrFilter(r *renderer, of any, g given) any {
	name := g.text(g.bind("name")[0])
	if _, isNamespace := of.(*namespace); isNamespace || slices.Contains(pythonNames[typeName(of)], name) {
		return r.attribute(of, name)
	}
	switch v := of.(type) {
	case undefined:
		r.wrong("%s is undefined", v.name)
	case *loop, *macro, *cycler, *view:
		return r.attribute(of, name)
	}
	return undefined{name}
}

// getter returns the function that reads a path of attributes and indices. If byDefault is not nil,
// it replaces undefined values. Texts become lower case if exactCase is false.
func (r *renderer) getter(path, byDefault any, exactCase bool) func(any) any {
	var parts []any
	text, isText := str(path)
	switch {
	case isText:
		r.spend(len(text) + 64*strings.Count(text, "."))
		for _, part := range strings.Split(text, ".") {
			parts = append(parts, r.pathPart(part))
		}
	case path != nil:
		parts = []any{path}
	}
	return func(item any) any {
		r.step(len(parts))
		for _, part := range parts {
			item = r.item(item, part)
			if _, isUndefined := item.(undefined); isUndefined && byDefault != nil {
				item = byDefault
			}
		}
		if text, isText := str(item); isText && !exactCase {
			return r.lower(text)
		}
		return item
	}
}

// pathPart returns a name, or a number if all characters are digits.
func (r *renderer) pathPart(part string) any {
	if !every(part, isDigitRune) {
		return part
	}
	n, isNumber := parseInt(r.asciiDigits(part), 10)
	if !isNumber {
		r.wrong("the number %.40s in a path of attributes", part)
	}
	return newInt(n)
}

// sortKey returns the key of sort: a list of the values of the comma-separated attributes.
func (r *renderer) sortKey(path any, exactCase bool) func(any) any {
	getters := []func(any) any{}
	if text, isText := str(path); isText {
		r.spend(len(text) + 128*strings.Count(text, ","))
		for one := range strings.SplitSeq(text, ",") {
			getters = append(getters, r.getter(one, nil, exactCase))
		}
	} else {
		getters = append(getters, r.getter(path, nil, exactCase))
	}
	return func(item any) any {
		all := &list{}
		r.spend(64)
		for _, get := range getters {
			all.items = append(all.items, get(item))
		}
		return all
	}
}

func sortFilter(r *renderer, of any, g given) any {
	args := g.bind("reverse", "case_sensitive", "attribute")
	items := r.each(of)
	return &list{items: r.arranged(items, items, r.sortKey(or(args[2], nil), truth(or(args[1], false))), g.flag(args[0]))}
}

func dictsortFilter(r *renderer, of any, g given) any {
	args := g.bind("case_sensitive", "by", "reverse")
	d, isDict := of.(*dict)
	if !isDict {
		r.wrong("dictsort of a value of the type %s, want a dict", typeName(of))
	}
	pairs := r.dictView(d, "items").items
	by, _ := str(or(args[1], "key"))
	keys := map[string][]any{"key": d.keys, "value": r.dictView(d, "values").items}[by]
	if keys == nil && by != "key" && by != "value" {
		r.wrong("dictsort by %.40q, want key or value", by)
	}
	return &list{items: r.arranged(pairs, keys, r.getter(nil, nil, truth(or(args[0], false))), g.flag(args[2]))}
}

// arranged returns items in the order of their keys.
func (r *renderer) arranged(items, by []any, key func(any) any, reverse bool) []any {
	keys := make([]any, len(by))
	for i := range by {
		keys[i] = key(by[i])
	}
	all := make([]any, len(items))
	for i, at := range r.sorted(keys, reverse) {
		all[i] = items[at]
	}
	return all
}

func uniqueFilter(r *renderer, of any, g given) any {
	args := g.bind("case_sensitive", "attribute")
	return r.lazy(func() func() (any, bool) {
		key := r.getter(or(args[1], nil), nil, truth(or(args[0], false)))
		seen, next := map[any]bool{}, r.iterate(of)
		return func() (any, bool) {
			for {
				item, more := next()
				if !more {
					return nil, false
				}
				r.spend(64)
				if hash := r.hash(key(item), 0); !seen[hash] {
					seen[hash] = true
					return item, true
				}
			}
		}
	})
}

func batchFilter(r *renderer, of any, g given) any {
	args := g.bind("linecount", "fill_with")
	size, fill := g.need(args[0]), or(args[1], nil)
	return r.lazy(func() func() (any, bool) {
		var all []any
		line := &list{}
		for _, item := range r.each(of) {
			r.spend(32)
			if r.equal(int64(len(line.items)), size, 0) {
				all = append(all, line)
				line = &list{}
			}
			line.items = append(line.items, item)
		}
		if len(line.items) > 0 {
			if fill != nil && r.order("<", int64(len(line.items)), size, 0) < 0 {
				for n := g.whole(size); int64(len(line.items)) < n; {
					r.step(1)
					r.spend(16)
					line.items = append(line.items, fill)
				}
			}
			all = append(all, line)
		}
		return r.iterate(&list{items: all})
	})
}

func sliceFilter(r *renderer, of any, g given) any {
	args := g.bind("slices", "fill_with")
	count := g.need(args[0])
	return r.lazy(func() func() (any, bool) {
		return r.iterate(&list{items: r.parts(r.each(of), g.whole(count), or(args[1], nil))})
	})
}

// parts splits items into lists of nearly the same length. The first lists have one item more, or
// the other lists get fill.
func (r *renderer) parts(items []any, count int64, fill any) (all []any) {
	if count == 0 {
		r.wrong("slice into 0 parts")
	}
	n, offset := int64(len(items)), int64(0)
	for i := range max(count, 0) {
		r.step(1)
		r.spend(32)
		start := offset + i*(n/count)
		if i < n%count {
			offset++
		}
		part := &list{items: append([]any(nil), items[start:offset+(i+1)*(n/count)]...)}
		r.spend(16 * len(part.items))
		if fill != nil && i >= n%count {
			part.items = append(part.items, fill)
		}
		all = append(all, part)
	}
	return all
}

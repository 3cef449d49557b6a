package chat

import (
	"strings"
)

func trimFilter(r *renderer, of any, g given) any {
	r.read(of)
	return like(of, r.stripped(r.text(of), or(g.bind("chars")[0], nil), g, "trim"))
}

func centerFilter(r *renderer, of any, g given) any {
	width := or(g.bind("width")[0], int64(80))
	r.read(of)
	return like(of, r.padded(r.text(of), "center", given{r, g.call, []any{width}, nil, nil}))
}

func replaceFilter(r *renderer, of any, g given) any {
	args := g.bind("old", "new", "count")
	limit := int64(-1)
	if count := or(args[2], nil); count != nil {
		limit = g.whole(count)
	}
	if r.escape {
		return r.replacedByFilter(of, g.need(args[0]), g.need(args[1]), limit)
	}
	return r.replaced(r.text(of), r.text(g.need(args[0])), r.text(g.need(args[1])), limit)
}

func indentFilter(r *renderer, of any, g given) any {
	args := g.bind("width", "first", "blank")
	indent, isText := str(or(args[0], int64(4)))
	if !isText {
		indent = r.repeated(" ", g.whole(or(args[0], int64(4))))
	}
	if _, isSafe := of.(markup); isSafe && isText {
		indent = string(r.escaped(args[0]))
	}
	r.spend(32 * len(g.text(of)))
	all := lines(g.text(of)+"\n", false)
	b := r.buffer()
	for i, line := range all {
		if i > 0 {
			b.add("\n")
		}
		if i == 0 && truth(or(args[1], false)) || i > 0 && (line != "" || truth(or(args[2], false))) {
			b.add(indent)
		}
		b.add(line.(string))
	}
	return like(of, b.String())
}

func truncateFilter(r *renderer, of any, g given) any {
	args := g.bind("length", "killwords", "end", "leeway")
	end := or(args[2], "...")
	r.read(of)
	r.read(end)
	leeway, isLeeway := r.real(or(args[3], int64(5)))
	if or(args[3], nil) == nil {
		leeway, isLeeway = 5, true
	}
	limit, isMost := r.real(or(args[0], int64(255)))
	ends, found := length(end)
	if !found || !isLeeway || !isMost {
		r.wrong("%s with a length, a leeway or an end of the wrong type", g.call)
	}
	if limit < float64(ends) || leeway < 0 {
		r.wrong("truncate to %v characters and %v more, with an end of %d", limit, leeway, ends)
	}
	if n, found := length(of); found && float64(n) <= limit+leeway {
		return of
	}
	kept := g.whole(or(args[0], int64(255))) - int64(ends)
	text := g.text(of)
	r.spend(4 * len(text))
	all := []rune(text)
	cut := string(all[:kept])
	if space := strings.LastIndexByte(cut, ' '); space >= 0 && !truth(or(args[1], false)) {
		cut = cut[:space]
	}
	if _, isSafe := of.(markup); isSafe {
		return markup(cut) + r.escaped(end)
	}
	return r.operate("+", cut, end)
}

func formatFilter(r *renderer, of any, g given) any {
	values := any(tupleOf(g.placed...))
	if len(g.names) > 0 {
		if len(g.placed) > 0 {
			r.wrong("format with both positional and named arguments")
		}
		values = r.newFields(g)
	}
	_, isSafe := of.(markup)
	return like(of, r.formatted(r.text(of), values, isSafe))
}

func wordcountFilter(r *renderer, of any, g given) any {
	g.bind()
	text := r.text(of)
	r.spend(len(text))
	count, within := int64(0), false
	for _, c := range text {
		word := wordRune(c)
		if word && !within {
			count++
		}
		within = word
	}
	return count
}

func urlencodeFilter(r *renderer, of any, g given) any {
	g.bind()
	if _, isText := str(of); isText {
		return r.quoted(r.text(of), "/")
	}
	var pairs []any
	switch v := of.(type) {
	case *dict:
		pairs = r.dictView(v, "items").items
	case *list, *iterator, *view:
		pairs = r.each(of)
	default:
		return r.quoted(r.text(of), "/")
	}
	b := r.buffer()
	for i, pair := range pairs {
		parts := r.each(pair)
		if len(parts) != 2 {
			r.wrong("urlencode of %d values, want pairs", len(parts))
		}
		if i > 0 {
			b.add("&")
		}
		b.add(strings.ReplaceAll(r.quoted(r.text(parts[0]), ""), "%20", "+"))
		b.add("=")
		b.add(strings.ReplaceAll(r.quoted(r.text(parts[1]), ""), "%20", "+"))
	}
	return b.String()
}

// quoted returns a text in which bytes that URLs cannot contain are escaped as %XX.
func (r *renderer) quoted(text, safe string) string {
	const digits = "0123456789ABCDEF"
	b := r.buffer()
	for i := range len(text) {
		if c := text[i]; isLetter(c) || isDigit(c) || strings.IndexByte("-.~"+safe, c) >= 0 {
			b.add(text[i : i+1])
		} else {
			b.add(string([]byte{'%', digits[c>>4], digits[c&15]}))
		}
	}
	return b.String()
}

package chat

import (
	"regexp"
	"slices"
	"unicode/utf8"
)

// prettyWidth is the line width of pprint.
const prettyWidth = 80

// pretty formats a value like Python's pprint: dicts in the order of their keys, and one item per
// line if the value does not fit into a line.
type pretty struct {
	r *renderer
	b *buffer
}

func prettyFilter(r *renderer, of any, g given) any {
	g.bind()
	p := pretty{r, r.buffer()}
	p.write(of, 0, 0, 0)
	return p.b.String()
}

func (p pretty) indent(n int) { p.b.add(p.r.repeated(" ", int64(n))) }

// repr returns a value in one line.
func (p pretty) repr(value any, depth int) string {
	b := p.r.buffer()
	p.one(b, value, depth)
	return b.String()
}

func (p pretty) one(b *buffer, value any, depth int) {
	p.r.step(1)
	p.r.nesting(depth)
	switch v := value.(type) {
	case *dict:
		b.add("{")
		for i, at := range p.order(v) {
			if i > 0 {
				b.add(", ")
			}
			p.one(b, v.keys[at], depth+1)
			b.add(": ")
			p.one(b, v.values[v.hashes[at]], depth+1)
		}
		b.add("}")
	case *list:
		if v.group {
			p.r.repr(b, v, depth)
			return
		}
		opening, closing := brackets(v)
		b.add(opening)
		for i, item := range v.items {
			if i > 0 {
				b.add(", ")
			}
			p.one(b, item, depth+1)
		}
		b.add(closing)
	default:
		p.r.repr(b, value, depth)
	}
}

// order returns the indices of the keys of a dict in sorted order. Keys of types without an order
// are sorted by the names of their types.
func (p pretty) order(d *dict) []int {
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	p.r.spend(16 * len(order))
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := d.keys[i], d.keys[j]
		if prettyRank(a) != prettyRank(b) {
			return prettyRank(a) - prettyRank(b)
		}
		if tuple, isList := a.(*list); isList && len(tuple.items) > 0 {
			p.r.unsupported("pprint of a dict with several tuples as keys")
		}
		return p.r.order("<", a, b, 0)
	})
	return order
}

// prettyRank orders types by the names of their classes in Python. All numbers are ordered
// together.
func prettyRank(value any) int {
	switch v := value.(type) {
	case undefined:
		return 4
	case nil:
		return 1
	case string, markup:
		return 5
	case *list:
		if v.tuple {
			return 6
		}
	}
	return 2
}

// write writes a value after indent characters of its line. allowance is the space for the brackets
// after it.
func (p pretty) write(value any, indent, allowance, level int) {
	text := p.repr(value, level)
	if utf8.RuneCountInString(text) > prettyWidth-indent-allowance {
		switch v := value.(type) {
		case *dict:
			p.dict(v, indent, allowance, level+1)
			return
		case *list:
			if !v.group {
				p.list(v, indent, allowance, level+1)
				return
			}
		case string:
			p.text(v, indent, allowance, level+1)
			return
		}
	}
	p.b.add(text)
}

func (p pretty) dict(d *dict, indent, allowance, level int) {
	p.b.add("{")
	for i, at := range p.order(d) {
		if i > 0 {
			p.b.add(",\n")
			p.indent(indent + 1)
		}
		key := p.repr(d.keys[at], level)
		p.b.add(key)
		p.b.add(": ")
		room := 1
		if i == len(d.keys)-1 {
			room = allowance + 1
		}
		p.write(d.values[d.hashes[at]], indent+1+utf8.RuneCountInString(key)+2, room, level)
	}
	p.b.add("}")
}

func (p pretty) list(l *list, indent, allowance, level int) {
	opening, closing := brackets(l)
	p.b.add(opening)
	for i, item := range l.items {
		if i > 0 {
			p.b.add(",\n")
			p.indent(indent + 1)
		}
		room := 1
		if i == len(l.items)-1 {
			room = allowance + len(closing)
		}
		p.write(item, indent+1, room, level)
	}
	p.b.add(closing)
}

// wordAndSpaces is a word with the spaces after it.
var wordAndSpaces = regexp.MustCompile(`[^\s\v\x{1c}-\x{1f}\x{85}\p{Z}]*[\s\v\x{1c}-\x{1f}\x{85}\p{Z}]*`)

// text writes a string in several lines, which Python joins.
func (p pretty) text(text string, indent, allowance, level int) {
	if level == 1 {
		indent++
		allowance++
	}
	p.r.spend(64 * len(text))
	all := lines(text, true)
	chunks := []string{}
	last := ""
	for i, line := range all {
		room := prettyWidth - indent
		final := i == len(all)-1
		if final {
			room -= allowance
		}
		if last = p.repr(line, 0); utf8.RuneCountInString(last) <= room {
			chunks = append(chunks, last)
			continue
		}
		chunks = append(chunks, p.words(line.(string), prettyWidth-indent, allowance, final)...)
	}
	if len(chunks) == 1 {
		p.b.add(last)
		return
	}
	if level == 1 {
		p.b.add("(")
	}
	for i, chunk := range chunks {
		if i > 0 {
			p.b.add("\n")
			p.indent(indent)
		}
		p.b.add(chunk)
	}
	if level == 1 {
		p.b.add(")")
	}
}

// words splits a line into parts that fit into the width.
func (p pretty) words(line string, width, allowance int, final bool) (chunks []string) {
	current := ""
	parts := wordAndSpaces.FindAllString(line, -1)
	if n := len(parts); n > 0 && parts[n-1] == "" {
		parts = parts[:n-1]
	}
	for i, part := range parts {
		if final && i == len(parts)-1 {
			width -= allowance
		}
		if candidate := current + part; utf8.RuneCountInString(p.repr(candidate, 0)) <= width {
			current = candidate
			continue
		}
		if current != "" {
			chunks = append(chunks, p.repr(current, 0))
		}
		current = part
	}
	if current != "" {
		chunks = append(chunks, p.repr(current, 0))
	}
	return chunks
}

// brackets returns the brackets of a list or a tuple.
func brackets(l *list) (opening, closing string) {
	switch {
	case !l.tuple:
		return "[", "]"
	case len(l.items) == 1:
		return "(", ",)"
	}
	return "(", ")"
}

package chat

import (
	"regexp"
	"slices"
	"strings"
)

// The patterns of the filter urlize, for a text that is escaped for HTML.
var (
	scheme   = regexp.MustCompile(`^[\p{L}\p{N}_.+-]{2,}:/{0,2}$`)
	linkHead = regexp.MustCompile(`^(?:[(<]|&lt;)+`)
	linkTail = regexp.MustCompile(`(?:[)>.,\n]|&gt;)+$`)
	webPage  = regexp.MustCompile(`(?i)^(?:(?:https?://|www\.)(?:(?:[\p{L}\p{N}_%-]+\.)+)?(?:[a-z]{2,63}|xn--[\p{L}\p{N}_%]{2,59})` +
		`|(?:[\p{L}\p{N}_%-]{2,63}\.)+(?:com|net|int|edu|gov|org|info|mil)` +
		`|https?://(?:\p{Nd}{1,3}(?:\.\p{Nd}{1,3}){3}|\[(?:[\p{Nd}a-f]{0,4}:){2}(?:[\p{Nd}a-f]{0,4}:?){1,6}\]))(?::\p{Nd}{1,5})?(?:[/?#].*)?$`)
	mailAddress = regexp.MustCompile(`^.+@[\p{L}\p{N}_][\p{L}\p{N}_.-]*\.[\p{L}\p{N}_]+$`)
)

// linker implements the filter urlize with its arguments.
type linker struct {
	attributes string
	limit      any // displayed characters of an address; nil: all
	schemes    []any
	g          given
}

func urlizeFilter(r *renderer, of any, g given) any {
	args := g.bind("trim_url_limit", "nofollow", "target", "rel", "extra_schemes")
	relations := []string{"noopener"}
	if rel := or(args[3], nil); truth(rel) {
		relations = append(relations, strings.FieldsFunc(g.text(rel), isSpace)...)
	}
	if truth(or(args[1], false)) {
		relations = append(relations, "nofollow")
	}
	slices.Sort(relations)
	l := linker{limit: or(args[0], nil), g: g}
	l.attributes = ` rel="` + string(r.escaped(strings.Join(slices.Compact(relations), " "))) + `"`
	if target := or(args[2], nil); truth(target) {
		l.attributes += ` target="` + string(r.escaped(target)) + `"`
	}
	if schemes := or(args[4], nil); truth(schemes) {
		l.schemes = r.each(schemes)
	}
	for _, one := range l.schemes {
		if !scheme.MatchString(g.text(one)) {
			r.wrong("the scheme %.40q of an address", one)
		}
	}
	text := string(r.escaped(of))
	b := r.buffer()
	for text != "" {
		r.spend(64)
		r.step(1 + len(l.schemes))
		end := strings.IndexFunc(text, isSpace)
		if end < 0 {
			end = len(text)
		}
		r.spend(16 * end)
		b.add(l.word(text[:end]))
		space := text[end:]
		text = strings.TrimLeftFunc(space, isSpace)
		b.add(space[:len(space)-len(text)])
	}
	return safeIf(b.String(), r.escape)
}

// word returns a word with a link around its address.
func (l linker) word(word string) string {
	head := linkHead.FindString(word)
	middle := word[len(head):]
	tail := linkTail.FindString(middle)
	middle = strings.TrimSuffix(middle, tail)
	for _, pair := range [][2]string{{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}} {
		opened := strings.Count(middle, pair[0])
		if opened <= strings.Count(middle, pair[1]) {
			continue
		}
		end := 0 // end of the part of tail that belongs to middle
		for range min(opened, strings.Count(tail, pair[1])) {
			end += strings.Index(tail[end:], pair[1]) + len(pair[1])
		}
		middle, tail = middle+tail[:end], tail[end:]
	}
	return head + l.link(middle) + tail
}

// link returns the link of an address, or a text that is not an address.
func (l linker) link(text string) string {
	mail, isMail := strings.CutPrefix(text, "mailto:")
	switch {
	case webPage.MatchString(text):
		address := text
		if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
			address = "https://" + text
		}
		return `<a href="` + address + `"` + l.attributes + ">" + l.shown(text) + "</a>"
	case isMail && mailAddress.MatchString(mail):
		return `<a href="` + text + `">` + mail + "</a>"
	case !strings.HasPrefix(text, "www.") && !strings.HasPrefix(text, "@") && !strings.Contains(text, ":") && mailAddress.MatchString(text):
		return `<a href="mailto:` + text + `">` + text + "</a>"
	}
	for _, one := range l.schemes {
		if prefix, _ := str(one); text != prefix && strings.HasPrefix(text, prefix) {
			text = `<a href="` + text + `"` + l.attributes + ">" + text + "</a>"
		}
	}
	return text
}

// shown returns the displayed text of a link, truncated to the limit.
func (l linker) shown(text string) string {
	all := []rune(text)
	if l.limit == nil {
		return text
	}
	limit := l.g.whole(l.limit)
	if int64(len(all)) <= limit {
		return text
	}
	if limit < 0 {
		limit = max(limit+int64(len(all)), 0)
	}
	return string(all[:limit]) + "..."
}

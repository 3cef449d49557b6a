package chat

import "strings"

// markup is a text from the filter safe or escape. Texts that are added to it are escaped.
type markup string

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped returns the text of a value, escaped for HTML.
func (r *renderer) escaped(value any) markup {
	if safe, isSafe := value.(markup); isSafe {
		return safe
	}
	text := r.text(value)
	r.spend(5 * len(text))
	return markup(htmlEscapes.Replace(text))
}

// markupMethod calls a method of a markup. It escapes arguments that become part of the result.
func (r *renderer) markupMethod(of markup, name string, g given) any {
	switch name {
	case "join":
		return r.joinedSafe(r.each(g.one()), of)
	case "replace":
		if len(g.placed) > 1 {
			g.placed = append([]any{g.placed[0], r.escaped(g.placed[1])}, g.placed[2:]...)
		}
	case "format":
		f := &braces{r: r, given: g, escape: true}
		return markup(f.text(string(of), 0))
	case "format_map":
		return markup(r.formatMap(string(of), g, true))
	case "ljust", "rjust", "center":
		if len(g.placed) > 1 {
			g.placed = []any{g.placed[0], string(r.escaped(g.placed[1]))}
		}
	case "find", "rfind", "index", "rindex", "count", "startswith", "endswith":
		return r.stringMethod(string(of), name, g)
	}
	switch result := r.stringMethod(string(of), name, g).(type) {
	case string:
		return markup(result)
	case *list:
		all := &list{tuple: result.tuple}
		for _, item := range result.items {
			all.items = append(all.items, markup(item.(string)))
		}
		return all
	default:
		return result
	}
}

// like returns a text as a markup if the original value is a markup.
func like(of any, text string) any {
	if _, isSafe := of.(markup); isSafe {
		return markup(text)
	}
	return text
}

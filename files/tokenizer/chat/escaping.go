package chat

import "slices"

// escapingFilters are filters that return safe strings within the tag autoescape.
var escapingFilters = []string{"join", "replace", "urlize", "xmlattr"}

// checkEscaping refuses a filter in a macro if the tag autoescape is in effect where the macro is
// defined but not where it is called, or the reverse. jinja2 uses the setting of the definition or
// of the call, depending on which values are constant.
func (r *renderer) checkEscaping(f filter) {
	if f.escape != r.escape && slices.Contains(escapingFilters, f.name) {
		r.unsupported("the filter %s in a macro that is called across the tag autoescape", f.name)
	}
}

// autoescape executes the tag autoescape.
func (r *renderer) autoescape(node escapeNode, s *scope) {
	before := r.escape
	r.escape = node.escape
	_ = r.all(node.body, s.inner())
	r.escape = before
}

// writePart executes the tag block. The block sees only the variables of the template or, if scoped
// is set, all variables.
func (r *renderer) writePart(node partNode, s *scope) {
	if node.required {
		r.wrong("a required block without a template that defines it")
	}
	before := r.blocks
	if node.scoped {
		r.blocks = s.inner()
	}
	_ = r.all(node.body, r.blocks.inner())
	r.blocks = before
}

// safeIf returns a text as a safe string if safe is set.
func safeIf(text string, safe bool) any {
	if safe {
		return markup(text)
	}
	return text
}

// concatenated implements the operator ~.
func (r *renderer) concatenated(e concat, parts []any) any {
	isSafe := func(part any) bool { _, safe := part.(markup); return safe }
	if !e.escape || !slices.ContainsFunc(parts, isSafe) {
		return r.joined(parts, "")
	}
	if e.constant { // jinja2 joins constants without regard to their types
		r.unsupported("~ of a safe string that is a constant, within the tag autoescape")
	}
	return r.joinedSafe(parts, "")
}

// joinedSafe joins values with a safe string between them, and escapes the values that are not
// safe.
func (r *renderer) joinedSafe(items []any, between markup) markup {
	b := r.buffer()
	for i, item := range items {
		if i > 0 {
			b.add(string(between))
		}
		b.add(string(r.escaped(item)))
	}
	return markup(b.String())
}

// joinedByFilter implements the filter join within the tag autoescape.
func (r *renderer) joinedByFilter(items []any, between any) any {
	safe, isSafe := between.(markup)
	for _, item := range items {
		if _, itemSafe := item.(markup); itemSafe && !isSafe {
			safe, isSafe = r.escaped(between), true
		}
	}
	if isSafe {
		return r.joinedSafe(items, safe)
	}
	return r.joined(items, r.text(between))
}

// replacedByFilter implements the filter replace within the tag autoescape.
func (r *renderer) replacedByFilter(of, from, to any, limit int64) any {
	_, safeOf := of.(markup)
	_, safeFrom := from.(markup)
	_, safeTo := to.(markup)
	if safeFrom || safeTo && !safeOf {
		of, safeOf = r.escaped(of), true
	}
	if safeOf {
		return markup(r.replaced(r.text(of), r.text(from), string(r.escaped(to)), limit))
	}
	return r.replaced(r.text(of), r.text(from), r.text(to), limit)
}

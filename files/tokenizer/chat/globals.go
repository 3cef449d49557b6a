package chat

import (
	"slices"
)

var globals = []string{"range", "namespace", "raise_exception", "strftime_now", "dict", "joiner", "cycler", "lipsum"}

// cycler is the global cycler of jinja2, which repeats its items endlessly.
type cycler struct {
	items []any
	at    int
}

// joiner is the global joiner of jinja2, which returns an empty text at first and its text
// afterwards.
type joiner struct {
	separator any
	used      bool
}

func (r *renderer) lookup(name string, s *scope) any {
	value, scopes, found := s.get(name)
	r.step(scopes / 16)
	if found {
		return value
	}
	if slices.Contains(globals, name) {
		return global(name)
	}
	return undefined{name}
}

func (r *renderer) call(of any, g given) any {
	switch f := of.(type) {
	case *macro:
		return r.macro(f, g)
	case method:
		g.call = "the method " + f.name
		return r.method(f, g)
	case global:
		g.call = "the function " + string(f)
		return r.global(string(f), g)
	case *loop:
		return r.again(f, g)
	case *joiner:
		g.bind()
		if f.used {
			return f.separator
		}
		f.used = true
		return ""
	case undefined:
		r.wrong("%s is undefined", f.name)
	}
	r.wrong("a value of the type %s is not a function", typeName(of))
	return nil
}

func (r *renderer) global(name string, g given) any {
	switch name {
	case "raise_exception":
		r.wrong("the template rejects the conversation: %s", r.text(g.need(g.bind("message")[0])))
	case "dict":
		return r.newFields(g)
	case "namespace":
		fields := r.newFields(g)
		for _, key := range fields.keys {
			if name, isText := str(key); isText {
				r.checkField(name)
			}
		}
		return &namespace{fields}
	case "range":
		return r.span(g)
	case "strftime_now":
		return r.date(g.text(g.bind("format")[0]))
	case "joiner":
		return &joiner{separator: or(g.bind("sep")[0], ", ")}
	case "cycler":
		if len(g.placed) == 0 || len(g.names) > 0 {
			r.wrong("a cycler without items, or with named arguments")
		}
		return &cycler{items: g.placed}
	}
	r.unsupported("the function %s, whose result is random", name) // lipsum
	return nil
}

// cyclerField returns an attribute of a cycler.
func (r *renderer) cyclerField(c *cycler, name string) (any, bool) {
	switch name {
	case "next", "reset":
		return method{c, name}, true
	case "current":
		return c.items[c.at%len(c.items)], true
	case "items":
		return tupleOf(c.items...), true
	case "pos":
		return int64(c.at % len(c.items)), true
	}
	return nil, false
}

// joinerField returns an attribute of a joiner.
func joinerField(j *joiner, name string) (any, bool) {
	value, found := map[string]any{"sep": j.separator, "used": j.used}[name]
	return value, found
}

package chat

import "slices"

// enter counts nested macros, recursive loops and iterators. Callers call leave after it.
func (r *renderer) enter() {
	if r.macros++; r.macros > maxMacros {
		r.tooMuch("more than %d macros, loops or iterators within each other", maxMacros)
	}
}

func (r *renderer) leave() { r.macros-- }

// macro calls a macro.
func (r *renderer) macro(m *macro, g given) any {
	r.enter()
	defer r.leave()
	inner := m.scope.inner()
	node, extra := m.node, newDict()
	taken := min(len(g.placed), len(node.names))
	var caller any = undefined{"caller"}
	for i, name := range g.names {
		r.step(1 + len(node.names)/16)
		at := slices.Index(node.names, name)
		switch {
		case at >= taken:
			inner.values[name] = g.named[i]
		case name == callerName && node.caller:
			if caller = g.named[i]; caller == nil {
				caller = undefined{"caller"}
			}
		case node.kwargs:
			r.set(extra, name, g.named[i])
		default:
			r.wrong("macro %s does not take the argument %s, or takes it only once", node.name, name)
		}
	}
	if len(g.placed) > taken && !node.varargs {
		r.wrong("macro %s takes %d arguments, not %d", node.name, len(node.names), len(g.placed))
	}
	node.special(inner, caller, extra, g.placed[taken:])
	for i, value := range g.placed[:taken] {
		inner.values[node.names[i]] = value
	}
	for i, name := range node.names {
		if _, given := inner.values[name]; given {
			continue
		}
		inner.values[name] = undefined{name}
		if d := i - (len(node.names) - len(node.defaults)); d >= 0 {
			inner.values[name] = r.eval(node.defaults[d], inner)
		}
	}
	line := r.line
	text := r.captured(func() { _ = r.all(node.body, inner) })
	r.line = line
	return safeIf(text, r.escape)
}

// special sets the variables caller, kwargs and varargs that the body of a macro reads.
func (m *macroNode) special(inner *scope, caller any, kwargs *dict, varargs []any) {
	if m.caller {
		inner.values[callerName] = caller
	}
	if m.kwargs {
		inner.values[kwargsName] = kwargs
	}
	if m.varargs {
		inner.values[varargsName] = tupleOf(varargs...)
	}
}

// macroField returns an attribute of a macro.
func (r *renderer) macroField(m *macro, name string) (any, bool) {
	switch name {
	case "name":
		if m.node.name == "" {
			return nil, true
		}
		return m.node.name, true
	case "arguments":
		return tupleOf(items(m.node.names)...), true
	case "catch_kwargs":
		return m.node.kwargs, true
	case "catch_varargs":
		return m.node.varargs, true
	case "caller":
		return m.node.caller, true
	}
	return nil, false
}

// callBlock calls a macro with the body of a block as its caller.
func (r *renderer) callBlock(node callNode, s *scope) {
	of := r.eval(node.call.of, s)
	g := r.given(node.call.args, "a call", s)
	if slices.Contains(g.names, callerName) {
		r.wrong("a call block with an argument named caller")
	}
	g.names = append(slices.Clone(g.names), callerName)
	g.named = append(slices.Clone(g.named), &macro{node.caller, s})
	r.write(r.call(of, g))
}

// write adds the result of a call or a filter to the text.
func (r *renderer) write(value any) {
	text, isText := str(value)
	if !isText {
		r.wrong("a block makes a value of the type %s, want a string", typeName(value))
	}
	r.out.add(text)
}

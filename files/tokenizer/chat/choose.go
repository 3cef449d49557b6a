package chat

// chosen implements select, reject, selectattr and rejectattr. It returns an iterator over the items that pass a test, or
// that fail it.
func (r *renderer) chosen(name string, of any, g given) func() (any, bool) {
	if !truth(of) { // jinja2 reads neither the items nor the arguments
		return r.iterate(&list{})
	}
	args, get := g.placed, func(item any) any { return item }
	if name == "selectattr" || name == "rejectattr" {
		if len(args) == 0 {
			r.wrong("%s requires the name of an attribute", g.call)
		}
		get, args = r.getter(args[0], nil, true), args[1:]
	}
	holds, want := truth, name == "select" || name == "selectattr"
	if len(args) > 0 {
		test := g.text(args[0])
		inner := given{r, "the test " + test, args[1:], g.names, g.named}
		holds = func(value any) bool { return r.test(test, value, inner) }
	}
	next := r.iterate(of)
	return func() (any, bool) {
		for {
			item, more := next()
			if !more || holds(get(item)) == want {
				return item, more
			}
		}
	}
}

func mapFilter(r *renderer, of any, g given) any {
	return r.lazy(func() func() (any, bool) { return r.mapped(of, g) })
}

// mapped returns an attribute of each item, or the result of a filter for each item.
func (r *renderer) mapped(of any, g given) func() (any, bool) {
	if !truth(of) { // jinja2 reads neither the items nor the arguments
		return r.iterate(&list{})
	}
	compute := func(item any) any { return item }
	if len(g.placed) == 0 {
		g.call = "the filter map"
		args := g.bind("attribute", "default")
		compute = r.getter(g.need(args[0]), or(args[1], nil), true)
	} else {
		name := g.text(g.placed[0])
		inner := given{r, "the filter " + name, g.placed[1:], g.names, g.named}
		compute = func(item any) any { return r.filter(name, item, inner) }
	}
	next := r.iterate(of)
	return func() (any, bool) {
		item, more := next()
		if more {
			item = compute(item)
		}
		return item, more
	}
}

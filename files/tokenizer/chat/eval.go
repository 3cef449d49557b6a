package chat

import "slices"

// eval returns the value of an expression. It limits how deeply expressions and the macros that they
// call are nested, because a Go program that exceeds its stack ends.
func (r *renderer) eval(e expression, s *scope) any {
	r.step(1)
	if r.nested++; r.nested > maxEvals {
		r.tooMuch("more than %d expressions within each other", maxEvals)
	}
	value := r.value(e, s)
	r.nested--
	return value
}

func (r *renderer) value(e expression, s *scope) any {
	switch e := e.(type) {
	case constant:
		return e.value
	case variable:
		return r.lookup(e.name, s)
	case listOf:
		return &list{items: r.evals(e.items, s), tuple: e.tuple}
	case dictOf:
		return r.dict(e, s)
	case attribute:
		return r.attribute(r.eval(e.of, s), e.name)
	case index:
		return r.item(r.eval(e.of, s), r.eval(e.at, s))
	case slice:
		return r.slice(e, s)
	case call:
		of := r.eval(e.of, s)
		return r.call(of, r.given(e.args, "a call", s))
	case filter:
		of := r.eval(e.of, s)
		r.checkEscaping(e)
		return r.filter(e.name, of, r.given(e.args, "the filter "+e.name, s))
	case test:
		of := r.eval(e.of, s)
		return r.test(e.name, of, r.given(e.args, "the test "+e.name, s))
	case unary:
		return r.unary(e, s)
	case binary:
		return r.binary(e, s)
	case concat:
		return r.concatenated(e, r.evals(e.parts, s))
	case comparison:
		return r.comparison(e, s)
	case conditional:
		if truth(r.eval(e.condition, s)) {
			return r.eval(e.then, s)
		}
		if e.or == nil {
			return undefined{"an if without else"}
		}
		return r.eval(e.or, s)
	}
	panic("an expression of no known type")
}

func (r *renderer) dict(e dictOf, s *scope) *dict {
	d := newDict()
	for i, key := range e.keys {
		name := r.eval(key, s)
		r.set(d, name, r.eval(e.values[i], s))
	}
	return d
}

func (r *renderer) comparison(e comparison, s *scope) bool {
	left := r.eval(e.first, s)
	for i, op := range e.ops {
		right := r.eval(e.rest[i], s)
		if !r.compare(op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (r *renderer) evals(all []expression, s *scope) []any {
	values := make([]any, len(all))
	for i, e := range all {
		values[i] = r.eval(e, s)
	}
	return values
}

// given evaluates the arguments of a call. The items after * and ** follow the preceding arguments.
func (r *renderer) given(a arguments, call string, s *scope) given {
	g := given{r, call, r.evals(a.placed, s), a.names, r.evals(a.named, s)}
	if a.list != nil {
		items := r.each(r.eval(a.list, s))
		r.spend(16 * len(items))
		g.placed = append(g.placed, items...)
	}
	if a.dict == nil {
		return g
	}
	more, isDict := r.eval(a.dict, s).(*dict)
	if !isDict {
		r.wrong("%s with ** of a value that is not a dict", call)
	}
	g.names = slices.Clone(g.names)
	before := g.names // the keys of a dict differ from each other
	for i, hash := range more.hashes {
		name, isText := str(more.keys[i])
		r.step(1 + len(before)/16)
		if !isText || slices.Contains(before, name) {
			r.wrong("%s with ** of a key that is not a string, or occurs twice", call)
		}
		r.spend(32)
		g.names, g.named = append(g.names, name), append(g.named, more.values[hash])
	}
	return g
}

package chat

import "errors"

// loop is the variable loop. It reads an item ahead only if the template requests the next item, so
// that conditions of loops are computed at the same time as in jinja2.
type loop struct {
	r       *renderer
	source  func() (any, bool)
	known   int // number of items; -1: not counted yet
	at      int // index of the current item
	before  any
	current any
	after   []any // at most one item, read ahead
	last    *list // arguments of the previous call of changed
	depth   int
	again   func(over any, depth int) any // nil unless the loop is recursive
}

// next moves to the next item.
func (l *loop) next() (any, bool) {
	item, found := l.peek()
	if !found {
		return nil, false
	}
	l.after = nil
	l.at++
	l.before, l.current = l.current, item
	return item, true
}

// peek returns the next item.
func (l *loop) peek() (any, bool) {
	if len(l.after) == 0 {
		item, found := l.source()
		if !found {
			return nil, false
		}
		l.after = []any{item}
	}
	return l.after[0], true
}

// length counts the items. If a condition selects the items, it reads the remaining items.
func (l *loop) length() int {
	if l.known < 0 {
		rest := l.r.each(&iterator{l.source})
		l.source = l.r.iterate(&list{items: rest})
		l.known = len(rest) + l.at + 1 + len(l.after)
	}
	return l.known
}

func (r *renderer) loop(node forNode, s *scope) error {
	return r.iteration(node, r.eval(node.over, s), s, 0)
}

// iteration executes a loop over the items of a value.
func (r *renderer) iteration(node forNode, over any, s *scope, depth int) error {
	around := &loop{r: r, source: r.iterate(over), known: -1, at: -1, depth: depth}
	if n, counted := length(over); counted && node.condition == nil {
		around.known = n
	}
	if node.condition != nil {
		all := around.source
		around.source = func() (any, bool) {
			for {
				item, more := all()
				if !more {
					return nil, false
				}
				inner := s.inner()
				if r.assign(node.target, item, inner); truth(r.eval(node.condition, inner)) {
					return item, true
				}
			}
		}
	}
	if node.recursive {
		around.again = func(over any, depth int) any {
			text := r.captured(func() { _ = r.iteration(node, over, s, depth) })
			return safeIf(text, node.escape)
		}
	}
	finished := false // an iteration reached its end; otherwise jinja2 executes the else of the loop
	for item, found := around.next(); found; item, found = around.next() {
		r.step(1)
		inner := s.inner()
		inner.values["loop"] = around
		r.assign(node.target, item, inner)
		left := r.all(node.body, inner)
		if errors.Is(left, errBreak) {
			break
		}
		finished = finished || left == nil
	}
	if finished {
		return nil
	}
	return r.all(node.or, s.inner())
}

// again implements the call of a recursive loop.
func (r *renderer) again(l *loop, g given) any {
	over := g.one()
	if l.again == nil {
		r.wrong("the loop is not recursive")
	}
	r.enter()
	defer r.leave()
	return l.again(over, l.depth+1)
}

// loopField returns an attribute of the variable loop.
func (r *renderer) loopField(l *loop, name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(l.length() - l.at), true
	case "revindex0":
		return int64(l.length() - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.length()), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.at == 0 {
			return undefined{"the item before the first"}, true
		}
		return l.before, true
	case "nextitem":
		if item, more := l.peek(); more {
			return item, true
		}
		return undefined{"the item after the last"}, true
	case "cycle", "changed":
		return method{l, name}, true
	}
	return nil, false
}

// loopMethod implements loop.cycle and loop.changed.
func (r *renderer) loopMethod(l *loop, name string, g given) any {
	if len(g.names) > 0 {
		r.wrong("%s with named arguments", g.call)
	}
	if name == "cycle" {
		if len(g.placed) == 0 {
			r.wrong("loop.cycle without items")
		}
		return g.placed[l.at%len(g.placed)]
	}
	now := tupleOf(g.placed...)
	if l.last != nil && r.equal(l.last, now, 0) {
		return false
	}
	l.last = now
	return true
}

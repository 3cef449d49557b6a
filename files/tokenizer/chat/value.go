package chat

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// A value of a template is nil, a bool, an int64, a *big.Int beyond an int64, a finite float64, a string,
// a markup, or one of the types below.
type (
	undefined struct{ name string }
	list      struct {
		items []any
		tuple bool
		group bool // a tuple of the filter groupby, with the attributes grouper and list
	}
	namespace struct{ fields *dict }
	// iterator computes each value when it is read, and yields it once, like a generator in Python.
	iterator struct{ next func() (any, bool) }
	// view is a range, or the keys, values or items of a dict.
	view struct {
		kind           string // Python's name of the type
		items          []any
		from, to, step int64 // bounds and step of a range
	}
	method struct {
		of   any
		name string
	}
	global string // a function
	macro  struct {
		node  macroNode
		scope *scope
	}
)

// tupleOf returns a tuple of items.
func tupleOf(items ...any) *list { return &list{items: items, tuple: true} }

// str returns the text of a string or markup.
func str(value any) (text string, isText bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// typeName returns the name of a value's type in Python, for messages and for pythonNames.
func typeName(value any) string {
	switch v := value.(type) {
	case undefined:
		return "undefined"
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string, markup:
		return "str"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *namespace:
		return "namespace"
	case *iterator:
		return "iterator"
	case *view:
		return v.kind
	case *loop:
		return "loop"
	case *cycler:
		return "cycler"
	}
	return "function"
}

func truth(value any) bool {
	switch v := value.(type) {
	case undefined, nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	case *loop:
		return v.length() > 0
	}
	return true
}

// number returns a bool or a small integer. In Python, True counts as 1.
func number(value any) (int64, bool) {
	switch v := value.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// equal implements Python's ==.
func (r *renderer) equal(a, b any, depth int) bool {
	r.step(1)
	r.nesting(depth)
	if order, numbers := compareNumbers(a, b); numbers {
		return order == 0
	}
	if x, isText := str(a); isText {
		y, same := str(b)
		r.spend(min(len(x), len(y)))
		return same && x == y
	}
	switch x := a.(type) {
	case undefined:
		_, same := b.(undefined)
		return same
	case nil:
		return b == nil
	case *list:
		y, same := b.(*list)
		return same && x.tuple == y.tuple && r.equalItems(x.items, y.items, depth+1)
	case *dict:
		y, same := b.(*dict)
		return same && r.equalDicts(x, y, depth+1)
	case *view:
		if y, same := b.(*view); same && x.kind == rangeType && y.kind == rangeType {
			return r.equalItems(x.items, y.items, depth+1)
		}
		if y, same := b.(*view); same && x.isSet() && y.isSet() {
			return r.equalSets(x.items, y.items, depth+1)
		}
		return a == b
	case *namespace, *macro, *iterator, *loop, *cycler, global, bool, int64, *big.Int, float64:
		return a == b
	}
	r.unsupported("comparing a value of the type %s", typeName(a))
	return false
}

func (r *renderer) equalItems(x, y []any, depth int) bool {
	if len(x) != len(y) {
		return false
	}
	for i, item := range x {
		if !r.equal(item, y[i], depth) {
			return false
		}
	}
	return true
}

// isSet reports whether Python compares a view like a set.
func (v *view) isSet() bool { return v.kind == "dict_keys" || v.kind == "dict_items" }

// equalSets compares items in any order.
func (r *renderer) equalSets(x, y []any, depth int) bool {
	if len(x) != len(y) {
		return false
	}
	for _, item := range x {
		if !slices.ContainsFunc(y, func(other any) bool { return r.equal(item, other, depth) }) {
			return false
		}
	}
	return true
}

func (r *renderer) equalDicts(x, y *dict, depth int) bool {
	if len(x.keys) != len(y.keys) {
		return false
	}
	for _, hash := range x.hashes {
		other, there := y.values[hash]
		if !there || !r.equal(x.values[hash], other, depth) {
			return false
		}
	}
	return true
}

// nesting refuses values that are nested too deeply.
func (r *renderer) nesting(depth int) {
	if depth > maxNesting {
		r.tooMuch("values nested deeper than %d", maxNesting)
	}
}

// order compares values like Python's < and >. The error refuses values without an order.
func (r *renderer) order(op string, left, right any, depth int) int {
	r.step(1)
	r.nesting(depth)
	if order, numbers := compareNumbers(left, right); numbers {
		return order
	}
	a, isText := str(left)
	if b, too := str(right); isText && too {
		r.spend(min(len(a), len(b)))
		return strings.Compare(a, b)
	}
	x, isList := left.(*list)
	if y, too := right.(*list); isList && too && x.tuple == y.tuple {
		for i := range min(len(x.items), len(y.items)) {
			if !r.equal(x.items[i], y.items[i], depth+1) {
				return r.order(op, x.items[i], y.items[i], depth+1)
			}
		}
		return cmp.Compare(len(x.items), len(y.items))
	}
	if v, isView := left.(*view); isView && v.isSet() {
		if v, isView := right.(*view); isView && v.isSet() {
			r.unsupported("%s between values of the types %s and %s", op, typeName(left), typeName(right))
		}
	}
	r.wrong("%s between values of the types %s and %s", op, typeName(left), typeName(right))
	return 0
}

func (r *renderer) compare(op string, left, right any) bool {
	switch op {
	case "==":
		return r.equal(left, right, 0)
	case "!=":
		return !r.equal(left, right, 0)
	case "in":
		return r.contains(right, left)
	case "not in":
		return !r.contains(right, left)
	}
	order := r.order(op, left, right, 0)
	return map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]
}

func (r *renderer) contains(in, value any) bool {
	if holder, isText := str(in); isText {
		part, isText := str(value)
		if !isText {
			r.wrong("whether a value of the type %s is in a string", typeName(value))
		}
		r.spend(len(holder))
		return strings.Contains(holder, part)
	}
	if holder, isDict := in.(*dict); isDict {
		_, there := holder.values[r.hash(value, 0)]
		return there
	}
	for next := r.iterate(in); ; {
		item, more := next()
		if !more {
			return false
		}
		if r.equal(item, value, 0) {
			return true
		}
	}
}

// length implements Python's len. found is false for values without a length.
func length(value any) (n int, found bool) {
	switch v := value.(type) {
	case undefined:
		return 0, true
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case *list:
		return len(v.items), true
	case *dict:
		return len(v.keys), true
	case *view:
		return len(v.items), true
	case *loop:
		return v.length(), true
	}
	return 0, false
}

// iterate returns the function that yields the items of a value.
func (r *renderer) iterate(value any) func() (any, bool) {
	if once, isIterator := value.(*iterator); isIterator {
		return once.next
	}
	items := r.each(value)
	return func() (any, bool) {
		if len(items) == 0 {
			return nil, false
		}
		item := items[0]
		items = items[1:]
		r.step(1)
		return item, true
	}
}

// each returns the items of a value. Callers must not change the slice.
func (r *renderer) each(value any) []any {
	if text, isText := str(value); isText {
		r.spend(16 * len(text))
		var all []any
		for _, c := range text {
			all = append(all, string(c))
		}
		return all
	}
	switch v := value.(type) {
	case undefined:
		return nil
	case *list:
		return v.items
	case *dict:
		return v.keys
	case *view:
		return v.items
	case *iterator:
		var all []any
		for {
			item, more := v.next()
			if !more {
				return all
			}
			r.spend(16)
			all = append(all, item)
		}
	}
	r.wrong("a value of type %s has no items", typeName(value))
	return nil
}

// compareNumbers compares two numbers exactly. numbers is false if one of the values is not a
// number.
func compareNumbers(a, b any) (order int, numbers bool) {
	x, isNumber := number(a)
	if y, too := number(b); isNumber && too {
		return cmp.Compare(x, y), true
	}
	exactA, isNumber := exact(a)
	if !isNumber {
		return 0, false
	}
	exactB, isNumber := exact(b)
	if !isNumber {
		return 0, false
	}
	return exactA.Cmp(exactB), true
}

// exact returns the exact value of a number.
func exact(value any) (*big.Float, bool) {
	if v, isFloat := value.(float64); isFloat {
		return big.NewFloat(v), !math.IsNaN(v)
	}
	if v, isWhole := whole(value); isWhole {
		return new(big.Float).SetPrec(uint(max(v.BitLen(), 1))).SetInt(v), true
	}
	return nil, false
}

// whole returns an integer or a bool.
func whole(value any) (*big.Int, bool) {
	if v, isBig := value.(*big.Int); isBig {
		return v, true
	}
	if n, isNumber := number(value); isNumber {
		return big.NewInt(n), true
	}
	return nil, false
}

// newInt returns an integer as an int64 if it fits.
func newInt(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// real returns a number as a float64.
func (r *renderer) real(value any) (f float64, isNumber bool) {
	if f, isFloat := value.(float64); isFloat {
		return f, true
	}
	n, isNumber := whole(value)
	if !isNumber {
		return 0, false
	}
	if f, _ = new(big.Float).SetInt(n).Float64(); math.IsInf(f, 0) {
		r.wrong("an integer of %d bits is too large for a float", n.BitLen())
	}
	return f, true
}

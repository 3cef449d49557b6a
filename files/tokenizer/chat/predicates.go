package chat

import (
	"slices"
)

// comparisonTests are the tests that compare with one value.
var comparisonTests = map[string]string{
	"equalto": "==", "eq": "==", "==": "==", "ne": "!=", "!=": "!=", "in": "in", "gt": ">", "greaterthan": ">", ">": ">",
	"ge": ">=", ">=": ">=", "lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
}

// plainTests are the remaining tests of jinja2 without an argument.
var plainTests = []string{
	"boolean", "callable", "defined", "escaped", "even", "false", "filter", "float", "integer", "iterable", "lower", "mapping",
	"none", "number", "odd", "sequence", "string", "test", "true", "undefined", "upper",
}

// knownTest reports whether name is a test of jinja2, as in "is defined". Templates with an unknown
// test are not valid.
func knownTest(name string) bool {
	return comparisonTests[name] != "" || name == "divisibleby" || name == "sameas" || slices.Contains(plainTests, name)
}

func (r *renderer) test(name string, of any, g given) bool {
	operator := comparisonTests[name]
	switch {
	case !knownTest(name):
		r.wrong("unknown test %s", name)
	case slices.Contains(plainTests, name):
		g.bind()
		return r.plainTest(name, of)
	case name == "in":
		return r.compare(operator, of, g.need(g.bind("seq")[0]))
	case operator != "":
		return r.compare(operator, of, g.one())
	case name == "divisibleby":
		return r.equal(r.operate("%", of, g.need(g.bind("num")[0])), int64(0), 0)
	}
	return r.same(of, g.need(g.bind("other")[0]))
}

// same implements Python's operator is.
func (r *renderer) same(a, b any) bool {
	switch a.(type) {
	case nil, bool, *list, *dict, *namespace, *macro, *view, *iterator, *loop:
		return a == b
	}
	switch b.(type) {
	case nil, bool, *list, *dict, *namespace, *macro, *view, *iterator, *loop:
		return false
	}
	if typeName(a) != typeName(b) || !r.equal(a, b, 0) {
		return false
	}
	r.unsupported("the test sameas of a value of the type %s", typeName(a))
	return false
}

func (r *renderer) plainTest(name string, of any) bool {
	kind := typeName(of)
	switch name {
	case "defined":
		return kind != "undefined"
	case "undefined":
		return kind == "undefined"
	case "none":
		return of == nil
	case "string":
		return kind == "str"
	case "mapping":
		return kind == "dict"
	case "boolean":
		return kind == "bool"
	case "true", "false":
		return of == (name == "true")
	case "integer":
		return kind == "int"
	case "float":
		return kind == "float"
	case "number":
		return kind == "int" || kind == "bool" || kind == "float"
	case "callable":
		return kind == "function" || kind == "undefined" || kind == "loop"
	case "escaped":
		_, isSafe := of.(markup)
		return isSafe
	case "filter", "test":
		known := map[string]func(string) bool{"filter": knownFilter, "test": knownTest}[name]
		text, isText := str(of)
		if !isText {
			r.hash(of, 0) // refuses an unhashable value, as Python's lookup does
		}
		return isText && known(text)
	case "lower", "upper":
		r.read(of)
		return characterMethods["is"+name](r, r.text(of))
	case "odd", "even":
		return r.equal(r.operate("%", of, int64(2)), map[string]any{"odd": int64(1), "even": int64(0)}[name], 0)
	}
	return isCollection(name, of)
}

// isCollection implements the tests iterable and sequence.
func isCollection(name string, of any) bool {
	switch v := of.(type) {
	case undefined, string, markup, *list, *dict:
		return true
	case *view:
		return name == "iterable" || v.kind == rangeType
	case *iterator, *loop:
		return name == "iterable"
	}
	return false
}

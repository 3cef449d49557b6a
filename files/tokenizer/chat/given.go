package chat

import (
	"math/big"
	"slices"
)

// given are the arguments of a call of a function, a filter or a method.
type given struct {
	r      *renderer
	call   string // name of the call for messages
	placed []any
	names  []string
	named  []any
}

// absent represents an argument that the template omitted.
type absent struct{}

// or returns an argument, or a default if the argument is absent.
func or(value, byDefault any) any {
	if _, missing := value.(absent); missing {
		return byDefault
	}
	return value
}

// bind returns the arguments in the order of the names of the parameters. A parameter without a
// name is positional only. Unknown arguments are an error.
func (g given) bind(names ...string) []any {
	if len(g.placed) > len(names) {
		g.r.wrong("%s with %d arguments, want at most %d", g.call, len(g.placed), len(names))
	}
	values := make([]any, len(names))
	for i := range values {
		if values[i] = (absent{}); i < len(g.placed) {
			values[i] = g.placed[i]
		}
	}
	for i, name := range g.names {
		at := slices.Index(names, name)
		if at < len(g.placed) {
			g.r.wrong("%s does not take the argument %s, or takes it only once", g.call, name)
		}
		values[at] = g.named[i]
	}
	return values
}

// need returns an argument that must not be omitted.
func (g given) need(value any) any {
	if _, missing := value.(absent); missing {
		g.r.wrong("an argument of %s is missing", g.call)
	}
	return value
}

// one returns the only argument.
func (g given) one() any { return g.need(g.bind("")[0]) }

// text returns the text of an argument.
func (g given) text(value any) string {
	text, isText := str(g.need(value))
	if !isText {
		g.r.wrong("%s with an argument of the type %s, want a string", g.call, typeName(value))
	}
	return text
}

// flag returns the truth value of an argument.
func (g given) flag(value any) bool { return truth(or(value, false)) }

// whole returns an integer argument.
func (g given) whole(value any) int64 {
	n, isNumber := number(g.need(value))
	if _, isBig := value.(*big.Int); isBig {
		g.r.unsupported("%s with a large integer", g.call)
	}
	if !isNumber {
		g.r.wrong("%s with an argument of the type %s, want an integer", g.call, typeName(value))
	}
	return n
}

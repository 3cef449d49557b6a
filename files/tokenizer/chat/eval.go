package chat

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

var globals = []string{"range", "namespace", "raise_exception", "strftime_now"}

// otherGlobals are known to jinja2 and not here.
var otherGlobals = []string{"dict", "lipsum", "cycler", "joiner"}

func (r *renderer) lookup(name string, s *scope) any {
	if value, found := s.get(name); found {
		return value
	}
	if slices.Contains(globals, name) {
		return global(name)
	}
	if slices.Contains(otherGlobals, name) {
		r.unsupported("the function %s", name)
	}
	return undefined{name}
}

func (r *renderer) eval(e expression, s *scope) any {
	r.step(1)
	switch e := e.(type) {
	case constant:
		return e.value
	case variable:
		return r.lookup(e.name, s)
	case listOf:
		return &list{r.evals(e.items, s), e.tuple}
	case dictOf:
		d := newDict()
		for i, key := range e.keys {
			name, isText := r.eval(key, s).(string)
			if !isText {
				r.unsupported("a dict with a key that is no string")
			}
			d.set(name, r.eval(e.values[i], s))
		}
		return d
	case attribute:
		return r.attribute(r.eval(e.of, s), e.name)
	case index:
		return r.item(r.eval(e.of, s), r.eval(e.at, s))
	case slice:
		return r.slice(e, s)
	case call:
		of := r.eval(e.of, s)
		placed, named := r.evals(e.args.placed, s), r.evals(e.args.named, s)
		return r.call(of, placed, e.args.names, named)
	case filter:
		of := r.eval(e.of, s)
		return r.filter(e.name, of, given{r, "the filter " + e.name, r.evals(e.args.placed, s), e.args.names, r.evals(e.args.named, s)})
	case test:
		of := r.eval(e.of, s)
		if len(e.args.names) > 0 {
			r.unsupported("arguments with names for the test %s", e.name)
		}
		return r.test(e.name, of, r.evals(e.args.placed, s))
	case unary:
		return r.unary(e, s)
	case binary:
		return r.binary(e, s)
	case concat:
		b := r.buffer()
		for _, part := range r.evals(e.parts, s) {
			b.add(r.text(part))
		}
		return b.String()
	case comparison:
		left := r.eval(e.first, s)
		for i, op := range e.ops {
			right := r.eval(e.rest[i], s)
			if !r.compare(op, left, right) {
				return false
			}
			left = right
		}
		return true
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

func (r *renderer) evals(all []expression, s *scope) []any {
	values := make([]any, len(all))
	for i, e := range all {
		values[i] = r.eval(e, s)
	}
	return values
}

func (r *renderer) unary(e unary, s *scope) any {
	value := r.eval(e.of, s)
	if e.op == "not" {
		return !truth(value)
	}
	n, isNumber := number(value)
	if f, isFloat := value.(float64); isFloat {
		if e.op == "-" {
			return -f
		}
		return f
	}
	if !isNumber {
		r.wrong("%s before a value of the type %s", e.op, typeName(value))
	}
	if e.op == "-" {
		return -n // no literal is the least number
	}
	return n
}

func (r *renderer) binary(e binary, s *scope) any {
	left := r.eval(e.left, s)
	switch e.op {
	case "and":
		if !truth(left) {
			return left
		}
		return r.eval(e.right, s)
	case "or":
		if truth(left) {
			return left
		}
		return r.eval(e.right, s)
	}
	right := r.eval(e.right, s)
	if a, isNumber := number(left); isNumber {
		if b, too := number(right); too {
			return r.arithmetic(e.op, a, b)
		}
	}
	if a, isNumber := r.real(left); isNumber {
		if b, too := r.real(right); too {
			return r.realArithmetic(e.op, a, b)
		}
	}
	if e.op == "+" {
		switch a := left.(type) {
		case string:
			if b, too := right.(string); too {
				r.spend(len(a) + len(b))
				return a + b
			}
		case *list:
			if b, too := right.(*list); too && a.tuple == b.tuple {
				r.spend(16 * (len(a.items) + len(b.items)))
				return &list{slices.Concat(a.items, b.items), a.tuple}
			}
		}
	}
	if text, isText := left.(string); isText && e.op == "*" {
		if n, times := number(right); times {
			n = max(n, 0)
			if n > maxWork {
				r.tooMuch("a text %d times", n)
			}
			r.spend(len(text) * int(n))
			return strings.Repeat(text, int(n))
		}
	}
	if _, isText := left.(string); isText && e.op == "%" {
		r.unsupported("formatting with %%")
	}
	r.wrong("%s between values of the types %s and %s", e.op, typeName(left), typeName(right))
	return nil
}

func (r *renderer) arithmetic(op string, a, b int64) any {
	const limit = math.MaxInt32 // sums and products of numbers up to here are exact
	if max(a, b) > limit || min(a, b) < -limit {
		r.unsupported("numbers beyond %d", limit)
	}
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "//", "%":
		if b == 0 {
			r.wrong("division by zero")
		}
		quotient, rest := a/b, a%b
		if rest != 0 && (rest < 0) != (b < 0) {
			quotient, rest = quotient-1, rest+b
		}
		if op == "%" {
			return rest
		}
		return quotient
	case "/":
		return r.realArithmetic(op, float64(a), float64(b))
	case "**":
		if b < 0 {
			r.unsupported("** with a number below 0")
		}
		power := int64(1)
		for range min(b, 64) { // by then it is beyond the limit, or it is 0 or 1
			if power *= a; max(power, -power) > limit {
				r.unsupported("numbers beyond %d", limit)
			}
		}
		if a == -1 && b%2 != 0 {
			power = -1
		}
		return power
	}
	r.unsupported("the operator %s", op)
	return nil
}

// realArithmetic is that of Python's floats.
func (r *renderer) realArithmetic(op string, a, b float64) any {
	var result float64
	switch op {
	case "+":
		result = a + b
	case "-":
		result = a - b
	case "*":
		result = a * b
	case "/", "//", "%":
		if b == 0 {
			r.wrong("division by zero")
		}
		if result = a / b; op != "/" {
			quotient, rest := floorDivision(a, b)
			result = map[string]float64{"//": quotient, "%": rest}[op]
		}
	default:
		r.unsupported("the operator %s with numbers that have a fraction", op)
	}
	if math.IsInf(result, 0) || math.IsNaN(result) {
		r.unsupported("numbers that are not finite")
	}
	return result
}

// floorDivision is divmod of Python: the rest has the sign of b, also where it is 0.
func floorDivision(a, b float64) (quotient, rest float64) {
	rest = math.Mod(a, b)
	quotient = (a - rest) / b
	switch {
	case rest == 0:
		rest = math.Copysign(0, b)
	case (b < 0) != (rest < 0):
		rest += b
		quotient--
	}
	if quotient == 0 {
		return math.Copysign(0, a/b), rest
	}
	whole := math.Floor(quotient)
	if quotient-whole > 0.5 {
		whole++
	}
	return whole, rest
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
	order, comparable := 0, false
	if a, isNumber := number(left); isNumber {
		if b, too := number(right); too {
			order, comparable = cmp.Compare(a, b), true
		}
	}
	if a, isNumber := r.real(left); isNumber && !comparable {
		if b, too := r.real(right); too {
			order, comparable = cmp.Compare(a, b), true
		}
	}
	if a, isText := left.(string); isText {
		if b, too := right.(string); too {
			r.spend(min(len(a), len(b)))
			order, comparable = strings.Compare(a, b), true
		}
	}
	if !comparable {
		r.wrong("%s between values of the types %s and %s", op, typeName(left), typeName(right))
	}
	return map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]
}

func (r *renderer) contains(in, value any) bool {
	switch holder := in.(type) {
	case string:
		part, isText := value.(string)
		if !isText {
			r.wrong("whether a value of the type %s is in a string", typeName(value))
		}
		r.spend(len(holder))
		return strings.Contains(holder, part)
	case *dict:
		name, isText := value.(string)
		_, there := holder.values[name]
		return isText && there
	case undefined, *list, *view, *iterator:
		if once, isIterator := holder.(*iterator); isIterator {
			for len(once.items) > 0 {
				next := once.items[0]
				if once.items = once.items[1:]; r.equal(next, value, 0) {
					return true
				}
			}
			return false
		}
		return slices.ContainsFunc(r.each(holder), func(item any) bool { return r.equal(item, value, 0) })
	}
	r.wrong("whether something is in a value of the type %s", typeName(in))
	return false
}

// item is value[at].
func (r *renderer) item(of, at any) any {
	switch v := of.(type) {
	case undefined:
		r.wrong("%s is undefined", v.what)
	case *dict:
		name, isText := at.(string)
		if value, there := v.values[name]; isText && there {
			return value
		}
	case *list:
		if n, isNumber := number(at); isNumber {
			if n < 0 {
				n += int64(len(v.items))
			}
			if n >= 0 && n < int64(len(v.items)) {
				return v.items[n]
			}
			return undefined{"an item beyond the end of a list"}
		}
	case string:
		if n, isNumber := number(at); isNumber {
			r.spend(4 * len(v))
			all := []rune(v)
			if n < 0 {
				n += int64(len(all))
			}
			if n >= 0 && n < int64(len(all)) {
				return string(all[n])
			}
			return undefined{"a character beyond the end of a string"}
		}
	}
	if name, isText := at.(string); isText {
		if _, isDict := of.(*dict); isDict && slices.Contains(pythonNames["dict"], name) {
			return method{of, name}
		}
		if _, isDict := of.(*dict); !isDict {
			return r.attribute(of, name)
		}
		return undefined{name}
	}
	if _, isUndefined := at.(undefined); isUndefined {
		return undefined{"an item"}
	}
	if typeName(of) == "dict" || typeName(of) == "list" || typeName(of) == "str" {
		return undefined{"an item"}
	}
	r.unsupported("an index into a value of the type %s", typeName(of))
	return nil
}

func (r *renderer) slice(e slice, s *scope) any {
	of := r.eval(e.of, s)
	var items []any
	switch v := of.(type) {
	case string:
		items = r.each(v)
	case *list:
		items = v.items
	case undefined:
		r.wrong("%s is undefined", v.what)
	default:
		r.wrong("a slice of a value of the type %s", typeName(of))
	}
	bound := func(e expression, byDefault int64) int64 {
		if e == nil {
			return byDefault
		}
		value := r.eval(e, s)
		if value == nil {
			return byDefault
		}
		n, isNumber := number(value)
		if !isNumber {
			r.wrong("a slice from or to a value of the type %s", typeName(value))
		}
		return n
	}
	step := bound(e.step, 1)
	if step == 0 {
		r.wrong("a slice in steps of 0")
	}
	n := int64(len(items))
	// As in Python: places before the beginning and after the end count as those.
	low, high := int64(0), n
	from, to := low, high
	if step < 0 {
		low, high = -1, n-1
		from, to = high, low
	}
	clamp := func(e expression, byDefault int64) int64 {
		at := bound(e, math.MaxInt64)
		if at == math.MaxInt64 {
			return byDefault
		}
		if at < 0 {
			at += n
		}
		return min(max(at, low), high)
	}
	from, to = clamp(e.from, from), clamp(e.to, to)
	r.spend(16 * len(items))
	var chosen []any
	for at := from; (step > 0 && at < to || step < 0 && at > to) && at >= 0 && at < n; at += step {
		chosen = append(chosen, items[at])
		if step > n || step < -n {
			break
		}
	}
	if _, isText := of.(string); isText {
		b := r.buffer()
		for _, c := range chosen {
			b.add(c.(string))
		}
		return b.String()
	}
	return &list{chosen, of.(*list).tuple}
}

func (r *renderer) call(of any, placed []any, names []string, named []any) any {
	g := given{r, "a call", placed, names, named}
	switch f := of.(type) {
	case *macro:
		return r.macro(f, placed, names, named)
	case method:
		g.what = "the method " + f.name
		return r.method(f, g)
	case global:
		g.what = "the function " + string(f)
		return r.global(string(f), g)
	case undefined:
		r.wrong("%s is undefined", f.what)
	}
	r.wrong("a value of the type %s is no function", typeName(of))
	return nil
}

func (r *renderer) global(name string, g given) any {
	switch name {
	case "raise_exception":
		r.wrong("it refuses the conversation: %s", r.text(g.one()))
	case "namespace":
		if len(g.placed) > 0 {
			r.unsupported("a namespace of other things than names")
		}
		fields := newDict()
		for i, name := range g.names {
			fields.set(name, g.named[i])
		}
		return &namespace{fields}
	case "range":
		return r.span(g)
	case "strftime_now":
		format, isText := g.one().(string)
		if r.now.IsZero() || !isText {
			r.unsupported("strftime_now")
		}
		return r.date(format)
	}
	return nil
}

func (r *renderer) span(g given) any {
	numbers := make([]int64, len(g.placed))
	for i, value := range g.placed {
		n, isNumber := number(value)
		if !isNumber {
			r.wrong("range of a value of the type %s", typeName(value))
		}
		numbers[i] = n
	}
	from, to, step := int64(0), int64(0), int64(1)
	switch len(numbers) {
	case 1:
		to = numbers[0]
	case 2:
		from, to = numbers[0], numbers[1]
	case 3:
		from, to, step = numbers[0], numbers[1], numbers[2]
	default:
		r.wrong("range with %d arguments", len(numbers))
	}
	if step == 0 || len(g.names) > 0 {
		r.wrong("range in steps of 0, or with names")
	}
	const most = 100_000 // of jinja2's sandbox
	var items []any
	for at := from; step > 0 && at < to || step < 0 && at > to; at += step {
		if len(items) == most {
			r.tooMuch("a range of more than %d numbers", most)
		}
		items = append(items, at)
		if at > math.MaxInt32 || at < -math.MaxInt32 || step > math.MaxInt32 || step < -math.MaxInt32 {
			r.unsupported("numbers beyond %d", math.MaxInt32)
		}
	}
	r.spend(16 * len(items))
	return &view{items}
}

// dates are the parts of strftime that templates use, in Go's words.
var dates = map[byte]string{'d': "02", 'b': "Jan", 'B': "January", 'Y': "2006", 'm': "01", 'y': "06", 'H': "15", 'M': "04", 'S': "05", 'a': "Mon", 'A': "Monday", '%': "%"}

func (r *renderer) date(format string) string {
	b := r.buffer()
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.add(format[i : i+1])
			continue
		}
		i++
		if i == len(format) || dates[format[i]] == "" {
			r.unsupported("strftime_now with the format %q", format)
		}
		b.add(r.now.Format(dates[format[i]]))
	}
	return b.String()
}

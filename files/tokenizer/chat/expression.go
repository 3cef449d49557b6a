package chat

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

type expression any

type (
	constant struct{ value any }
	variable struct{ name string }
	listOf   struct {
		items []expression
		tuple bool
	}
	dictOf    struct{ keys, values []expression }
	attribute struct {
		of   expression
		name string
	}
	index struct{ of, at expression }
	slice struct {
		of, from, to, step expression // nil: omitted
		constant           bool       // without variables and calls
	}
	call struct {
		of   expression
		args arguments
	}
	filter struct {
		of     expression
		name   string
		args   arguments
		escape bool // within the tag autoescape
	}
	test struct {
		of   expression
		name string
		args arguments
	}
	unary struct {
		op string // - + not
		of expression
	}
	binary struct {
		op          string
		left, right expression
	}
	concat struct {
		parts            []expression
		escape, constant bool // within the tag autoescape, without variables and calls
	}
	comparison struct {
		first expression
		ops   []string
		rest  []expression
	}
	conditional struct{ condition, then, or expression }
)

// arguments are the arguments of a call: positional arguments, then named arguments.
type arguments struct {
	placed []expression
	names  []string
	named  []expression
	// The expressions after * and **; nil: none.
	list, dict expression
}

// tuple reads an expression, or several expressions separated by commas. If conditions is false, an
// if after an expression does not belong to the expression, as in the tag for.
func (p *parser) tuple(conditions bool) expression {
	read := p.expression
	if !conditions {
		read = p.or
	}
	first := read()
	if !p.is(operatorToken, ",") {
		return first
	}
	items := []expression{first}
	for p.skip(operatorToken, ",") {
		if t := p.now(); t.kind == endValue || t.kind == endBlock || t.kind == operatorToken && t.text == ")" {
			break
		}
		items = append(items, read())
	}
	return listOf{items, true}
}

func (p *parser) expression() expression {
	p.deeper()
	defer func() { p.depth-- }()
	unknown, soft := len(p.unknown), p.soft
	value := p.or()
	for n := 0; p.skip(nameToken, "if"); n++ {
		if n == maxDepth {
			panic(p.tooDeep())
		}
		c := conditional{then: value}
		p.unknown, p.soft = p.unknown[:unknown], true
		c.condition = p.or()
		if p.skip(nameToken, "else") {
			c.or = p.expression()
		}
		value = c
	}
	p.soft = soft
	return value
}

// chain reads the operands of one level and the operators between them.
func (p *parser) chain(next func() expression, k kind, ops ...string) expression {
	left := next()
	for n := 0; p.now().kind == k && slices.Contains(ops, p.now().text); n++ {
		if n == maxDepth {
			panic(p.tooDeep())
		}
		op := p.take().text
		left = binary{op, left, next()}
	}
	return left
}

func (p *parser) or() expression  { return p.chain(p.and, nameToken, "or") }
func (p *parser) and() expression { return p.chain(p.not, nameToken, "and") }

func (p *parser) not() expression {
	if !p.skip(nameToken, "not") {
		return p.comparison()
	}
	p.deeper()
	defer func() { p.depth-- }()
	return unary{"not", p.not()}
}

func (p *parser) comparison() expression {
	first := p.sum()
	c := comparison{first: first}
	for {
		t, op := p.now(), ""
		switch {
		case t.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			op = t.text
		case t.kind == nameToken && t.text == "in":
			op = "in"
		case t.kind == nameToken && t.text == "not" && p.tokens[p.at+1].text == "in" && p.tokens[p.at+1].kind == nameToken:
			op = "not in"
			p.at++
		}
		if op == "" {
			break
		}
		p.at++
		c.ops, c.rest = append(c.ops, op), append(c.rest, p.sum())
	}
	if len(c.ops) == 0 {
		return first
	}
	return c
}

func (p *parser) sum() expression { return p.chain(p.concat, operatorToken, "+", "-") }

func (p *parser) concat() expression {
	dynamic := p.dynamic
	first := p.product()
	parts := []expression{first}
	for p.skip(operatorToken, "~") {
		parts = append(parts, p.product())
	}
	if len(parts) == 1 {
		return first
	}
	return concat{parts, p.escape, p.dynamic == dynamic}
}

func (p *parser) product() expression {
	return p.chain(p.power, operatorToken, "*", "/", "//", "%")
}

func (p *parser) power() expression {
	return p.chain(func() expression { return p.unary(true) }, operatorToken, "**")
}

func (p *parser) unary(filters bool) expression {
	p.deeper()
	defer func() { p.depth-- }()
	var value expression
	dynamic := p.dynamic
	if p.is(operatorToken, "-") || p.is(operatorToken, "+") {
		op := p.take().text
		value = unary{op, p.unary(false)}
	} else {
		value = p.primary()
	}
	value = p.postfix(value, dynamic)
	if filters {
		value = p.filters(value)
	}
	return value
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expression {
	t := p.take()
	switch t.kind {
	case nameToken:
		if value, found := constants[t.text]; found {
			return constant{value}
		}
		if slices.Contains(reserved, t.text) {
			p.at--
			panic(p.unsupported("the name " + t.text + " here"))
		}
		if p.inPart && t.text == "super" {
			p.at--
			panic(p.unsupported("super of a block"))
		}
		p.load(t.text)
		return variable{t.text}
	case stringToken:
		var text strings.Builder
		text.WriteString(t.text)
		for p.now().kind == stringToken {
			text.WriteString(p.take().text)
		}
		return constant{text.String()}
	case integerToken:
		value, valid := new(big.Int).SetString(t.text, 0)
		if !valid || value.BitLen() > maxBits {
			p.at--
			panic(p.unsupported("the number " + t.text))
		}
		return constant{newInt(value)}
	case floatToken:
		value, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			p.at--
			panic(p.unsupported("the number " + t.text))
		}
		return constant{value}
	case operatorToken:
		switch t.text {
		case "(":
			if p.skip(operatorToken, ")") {
				return listOf{tuple: true}
			}
			value := p.tuple(true)
			p.expect(operatorToken, ")")
			return value
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.at = max(p.at-1, 0)
	panic(p.wrong("an expression"))
}

func (p *parser) list() expression {
	var l listOf
	for !p.skip(operatorToken, "]") {
		if len(l.items) > 0 {
			p.expect(operatorToken, ",")
			if p.skip(operatorToken, "]") {
				break
			}
		}
		l.items = append(l.items, p.expression())
	}
	return l
}

func (p *parser) dict() expression {
	var d dictOf
	for !p.skip(operatorToken, "}") {
		if len(d.keys) > 0 {
			p.expect(operatorToken, ",")
			if p.skip(operatorToken, "}") {
				break
			}
		}
		key := p.expression()
		p.expect(operatorToken, ":")
		value := p.expression()
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d
}

// postfix reads attributes, items and calls of a value. dynamic is p.dynamic before the value.
func (p *parser) postfix(value expression, dynamic int) expression {
	for n := 0; ; n++ {
		if n == maxDepth {
			panic(p.tooDeep())
		}
		switch {
		case p.skip(operatorToken, "."):
			if p.now().kind == integerToken {
				value = index{value, p.primary()}
				break
			}
			value = attribute{value, p.name()}
		case p.skip(operatorToken, "["):
			value = p.subscript(value)
			if part, isSlice := value.(slice); isSlice {
				part.constant = p.dynamic == dynamic
				value = part
			}
		case p.is(operatorToken, "("):
			p.dynamic++
			value = call{value, p.arguments()}
		default:
			return value
		}
	}
}

func (p *parser) subscript(of expression) expression {
	var parts [3]expression
	colons := 0
	for !p.skip(operatorToken, "]") {
		if p.skip(operatorToken, ":") {
			if colons++; colons > 2 {
				panic(p.wrong("]"))
			}
			continue
		}
		if parts[colons] != nil {
			if p.is(operatorToken, ",") && colons == 0 {
				return p.tupleIndex(of, parts[0])
			}
			panic(p.wrong("]"))
		}
		parts[colons] = p.expression()
	}
	switch {
	case colons > 0:
		return slice{of: of, from: parts[0], to: parts[1], step: parts[2]}
	case parts[0] == nil:
		panic(p.wrong("an index"))
	}
	return index{of, parts[0]}
}

// tupleIndex reads the rest of an index that consists of several values.
func (p *parser) tupleIndex(of, first expression) expression {
	all := []expression{first}
	for p.skip(operatorToken, ",") {
		all = append(all, p.expression())
	}
	p.expect(operatorToken, "]")
	return index{of, listOf{all, true}}
}

func (p *parser) arguments() (a arguments) {
	p.expect(operatorToken, "(")
	for n := 0; !p.skip(operatorToken, ")"); n++ {
		if n > 0 {
			p.expect(operatorToken, ",")
			if p.skip(operatorToken, ")") {
				break
			}
		}
		p.argument(&a)
	}
	return a
}

// argument reads one argument of a call.
func (p *parser) argument(a *arguments) {
	switch {
	case a.dict != nil, p.is(operatorToken, "*") && a.list != nil:
		panic(p.wrong("the end of the arguments"))
	case p.skip(operatorToken, "*"):
		a.list = p.expression()
		return
	case p.skip(operatorToken, "**"):
		a.dict = p.expression()
		return
	}
	name := ""
	if p.now().kind == nameToken && p.tokens[p.at+1].kind == operatorToken && p.tokens[p.at+1].text == "=" {
		name = p.take().text
		p.at++
	}
	value := p.expression()
	switch {
	case name != "" && slices.Contains(a.names, name):
		panic(p.unsupported("a duplicate argument"))
	case name != "":
		a.names, a.named = append(a.names, name), append(a.named, value)
	case len(a.names) > 0 || a.list != nil:
		panic(p.wrong("an argument with a name"))
	default:
		a.placed = append(a.placed, value)
	}
}

// filters reads the filters and tests after a value.
func (p *parser) filters(value expression) expression {
	for n := 0; ; n++ {
		if n == maxDepth {
			panic(p.tooDeep())
		}
		switch {
		case p.skip(operatorToken, "|"):
			value = p.filterAfter(value)
		case p.skip(nameToken, "is"):
			value = p.test(value)
		case p.is(operatorToken, "("):
			p.dynamic++
			value = call{value, p.arguments()}
		default:
			return value
		}
	}
}

// filterAfter reads the filter after a bar.
func (p *parser) filterAfter(value expression) expression {
	f := filter{of: value, escape: p.escape}
	f.name = p.name()
	if !knownFilter(f.name) && !p.soft {
		p.unknown = append(p.unknown, fmt.Sprintf("line %d: unknown filter %s", p.now().line, f.name))
	}
	if p.is(operatorToken, "(") {
		f.args = p.arguments()
	}
	return f
}

func (p *parser) test(of expression) expression {
	negated := p.skip(nameToken, "not")
	name := p.name()
	t := test{of: of, name: name}
	if !knownTest(name) && !p.soft {
		p.unknown = append(p.unknown, fmt.Sprintf("line %d: unknown test %s", p.now().line, name))
	}
	now := p.now()
	switch {
	case p.is(operatorToken, "("):
		t.args = p.arguments()
	case now.kind == nameToken && slices.Contains([]string{"else", "or", "and"}, now.text):
	case now.kind == nameToken, now.kind == stringToken, now.kind == integerToken, now.kind == floatToken,
		now.kind == operatorToken && (now.text == "[" || now.text == "{"):
		dynamic := p.dynamic
		t.args.placed = []expression{p.postfix(p.primary(), dynamic)}
	}
	if negated {
		return unary{"not", t}
	}
	return t
}

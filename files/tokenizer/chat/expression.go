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
func (p *parser) tuple(conditions bool) (expression, error) {
	read := p.expression
	if !conditions {
		read = p.or
	}
	first, err := read()
	if err != nil || !p.is(operatorToken, ",") {
		return first, err
	}
	items := []expression{first}
	for p.skip(operatorToken, ",") {
		if t := p.now(); t.kind == endValue || t.kind == endBlock || t.kind == operatorToken && t.text == ")" {
			break
		}
		next, err := read()
		if err != nil {
			return nil, err
		}
		items = append(items, next)
	}
	return listOf{items, true}, nil
}

func (p *parser) expression() (expression, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	unknown, soft := len(p.unknown), p.soft
	value, err := p.or()
	for n := 0; err == nil && p.skip(nameToken, "if"); n++ {
		if n == maxDepth {
			return nil, p.deepChain()
		}
		c := conditional{then: value}
		p.unknown, p.soft = p.unknown[:unknown], true
		if c.condition, err = p.or(); err != nil {
			return nil, err
		}
		if p.skip(nameToken, "else") {
			c.or, err = p.expression()
		}
		value = c
	}
	p.soft = soft
	return value, err
}

// chain reads the operands of one level and the operators between them.
func (p *parser) chain(next func() (expression, error), k kind, ops ...string) (expression, error) {
	left, err := next()
	for n := 0; err == nil && p.now().kind == k && slices.Contains(ops, p.now().text); n++ {
		if n == maxDepth {
			return nil, p.deepChain()
		}
		op := p.take().text
		var right expression
		right, err = next()
		left = binary{op, left, right}
	}
	return left, err
}

func (p *parser) deepChain() error {
	p.depth = maxDepth
	return p.deeper()
}

func (p *parser) or() (expression, error)  { return p.chain(p.and, nameToken, "or") }
func (p *parser) and() (expression, error) { return p.chain(p.not, nameToken, "and") }

func (p *parser) not() (expression, error) {
	if !p.skip(nameToken, "not") {
		return p.comparison()
	}
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	of, err := p.not()
	return unary{"not", of}, err
}

func (p *parser) comparison() (expression, error) {
	first, err := p.sum()
	c := comparison{first: first}
	for err == nil {
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
		var next expression
		next, err = p.sum()
		c.ops, c.rest = append(c.ops, op), append(c.rest, next)
	}
	if len(c.ops) == 0 {
		return first, err
	}
	return c, err
}

func (p *parser) sum() (expression, error) { return p.chain(p.concat, operatorToken, "+", "-") }

func (p *parser) concat() (expression, error) {
	dynamic := p.dynamic
	first, err := p.product()
	parts := []expression{first}
	for err == nil && p.skip(operatorToken, "~") {
		var next expression
		next, err = p.product()
		parts = append(parts, next)
	}
	if len(parts) == 1 {
		return first, err
	}
	return concat{parts, p.escape, p.dynamic == dynamic}, err
}

func (p *parser) product() (expression, error) {
	return p.chain(p.power, operatorToken, "*", "/", "//", "%")
}

func (p *parser) power() (expression, error) {
	return p.chain(func() (expression, error) { return p.unary(true) }, operatorToken, "**")
}

func (p *parser) unary(filters bool) (expression, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var value expression
	var err error
	dynamic := p.dynamic
	if p.is(operatorToken, "-") || p.is(operatorToken, "+") {
		op := p.take().text
		value, err = p.unary(false)
		value = unary{op, value}
	} else {
		value, err = p.primary()
	}
	if err == nil {
		value, err = p.postfix(value, dynamic)
	}
	if err == nil && filters {
		value, err = p.filters(value)
	}
	return value, err
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() (expression, error) {
	t := p.take()
	switch t.kind {
	case nameToken:
		if value, found := constants[t.text]; found {
			return constant{value}, nil
		}
		if slices.Contains(reserved, t.text) {
			p.at--
			return nil, p.unsupported("the name " + t.text + " here")
		}
		if p.inPart && t.text == "super" {
			p.at--
			return nil, p.unsupported("super of a block")
		}
		p.load(t.text)
		return variable{t.text}, nil
	case stringToken:
		var text strings.Builder
		text.WriteString(t.text)
		for p.now().kind == stringToken {
			text.WriteString(p.take().text)
		}
		return constant{text.String()}, nil
	case integerToken:
		value, valid := new(big.Int).SetString(t.text, 0)
		if !valid || value.BitLen() > maxBits {
			p.at--
			return nil, p.unsupported("the number " + t.text)
		}
		return constant{newInt(value)}, nil
	case floatToken:
		value, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			p.at--
			return nil, p.unsupported("the number " + t.text)
		}
		return constant{value}, nil
	case operatorToken:
		switch t.text {
		case "(":
			if p.skip(operatorToken, ")") {
				return listOf{tuple: true}, nil
			}
			value, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			return value, p.expect(operatorToken, ")")
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.at = max(p.at-1, 0)
	return nil, p.wrong("an expression")
}

func (p *parser) list() (expression, error) {
	var l listOf
	for !p.skip(operatorToken, "]") {
		if len(l.items) > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return nil, err
			}
			if p.skip(operatorToken, "]") {
				break
			}
		}
		item, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, item)
	}
	return l, nil
}

func (p *parser) dict() (expression, error) {
	var d dictOf
	for !p.skip(operatorToken, "}") {
		if len(d.keys) > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return nil, err
			}
			if p.skip(operatorToken, "}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(operatorToken, ":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}

// postfix reads attributes, items and calls of a value. dynamic is p.dynamic before the value.
func (p *parser) postfix(value expression, dynamic int) (expression, error) {
	for n := 0; ; n++ {
		if n == maxDepth {
			return nil, p.deepChain()
		}
		var err error
		switch {
		case p.skip(operatorToken, "."):
			if p.now().kind == integerToken {
				var at expression
				at, err = p.primary()
				value = index{value, at}
				break
			}
			var name string
			name, err = p.name()
			value = attribute{value, name}
		case p.skip(operatorToken, "["):
			if value, err = p.subscript(value); err == nil {
				if part, isSlice := value.(slice); isSlice {
					part.constant = p.dynamic == dynamic
					value = part
				}
			}
		case p.is(operatorToken, "("):
			p.dynamic++
			var args arguments
			args, err = p.arguments()
			value = call{value, args}
		default:
			return value, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) subscript(of expression) (expression, error) {
	var parts [3]expression
	colons := 0
	for !p.skip(operatorToken, "]") {
		if p.skip(operatorToken, ":") {
			if colons++; colons > 2 {
				return nil, p.wrong("]")
			}
			continue
		}
		if parts[colons] != nil {
			if p.is(operatorToken, ",") && colons == 0 {
				return p.tupleIndex(of, parts[0])
			}
			return nil, p.wrong("]")
		}
		part, err := p.expression()
		if err != nil {
			return nil, err
		}
		parts[colons] = part
	}
	switch {
	case colons > 0:
		return slice{of: of, from: parts[0], to: parts[1], step: parts[2]}, nil
	case parts[0] == nil:
		return nil, p.wrong("an index")
	}
	return index{of, parts[0]}, nil
}

// tupleIndex reads the rest of an index that consists of several values.
func (p *parser) tupleIndex(of, first expression) (expression, error) {
	all := []expression{first}
	for p.skip(operatorToken, ",") {
		next, err := p.expression()
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return index{of, listOf{all, true}}, p.expect(operatorToken, "]")
}

func (p *parser) arguments() (a arguments, err error) {
	if err := p.expect(operatorToken, "("); err != nil {
		return a, err
	}
	for n := 0; !p.skip(operatorToken, ")"); n++ {
		if n > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return a, err
			}
			if p.skip(operatorToken, ")") {
				break
			}
		}
		if err := p.argument(&a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// argument reads one argument of a call.
func (p *parser) argument(a *arguments) (err error) {
	switch {
	case a.dict != nil, p.is(operatorToken, "*") && a.list != nil:
		return p.wrong("the end of the arguments")
	case p.skip(operatorToken, "*"):
		a.list, err = p.expression()
		return err
	case p.skip(operatorToken, "**"):
		a.dict, err = p.expression()
		return err
	}
	name := ""
	if p.now().kind == nameToken && p.tokens[p.at+1].kind == operatorToken && p.tokens[p.at+1].text == "=" {
		name = p.take().text
		p.at++
	}
	value, err := p.expression()
	switch {
	case err != nil:
		return err
	case name != "" && slices.Contains(a.names, name):
		return p.unsupported("a duplicate argument")
	case name != "":
		a.names, a.named = append(a.names, name), append(a.named, value)
	case len(a.names) > 0 || a.list != nil:
		return p.wrong("an argument with a name")
	default:
		a.placed = append(a.placed, value)
	}
	return nil
}

// filters reads the filters and tests after a value.
func (p *parser) filters(value expression) (expression, error) {
	for n := 0; ; n++ {
		if n == maxDepth {
			return nil, p.deepChain()
		}
		var err error
		switch {
		case p.skip(operatorToken, "|"):
			value, err = p.filterAfter(value)
		case p.skip(nameToken, "is"):
			value, err = p.test(value)
		case p.is(operatorToken, "("):
			p.dynamic++
			var args arguments
			args, err = p.arguments()
			value = call{value, args}
		default:
			return value, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filterAfter reads the filter after a bar.
func (p *parser) filterAfter(value expression) (expression, error) {
	f := filter{of: value, escape: p.escape}
	var err error
	if f.name, err = p.name(); err != nil {
		return nil, err
	}
	if !knownFilter(f.name) && !p.soft {
		p.unknown = append(p.unknown, fmt.Sprintf("line %d: unknown filter %s", p.now().line, f.name))
	}
	if p.is(operatorToken, "(") {
		f.args, err = p.arguments()
	}
	return f, err
}

func (p *parser) test(of expression) (expression, error) {
	negated := p.skip(nameToken, "not")
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	t := test{of: of, name: name}
	if !knownTest(name) && !p.soft {
		p.unknown = append(p.unknown, fmt.Sprintf("line %d: unknown test %s", p.now().line, name))
	}
	now := p.now()
	switch {
	case p.is(operatorToken, "("):
		t.args, err = p.arguments()
	case now.kind == nameToken && slices.Contains([]string{"else", "or", "and"}, now.text):
	case now.kind == nameToken, now.kind == stringToken, now.kind == integerToken, now.kind == floatToken,
		now.kind == operatorToken && (now.text == "[" || now.text == "{"):
		var argument expression
		dynamic := p.dynamic
		if argument, err = p.primary(); err == nil {
			argument, err = p.postfix(argument, dynamic)
		}
		t.args.placed = []expression{argument}
	}
	if negated {
		return unary{"not", t}, err
	}
	return t, err
}

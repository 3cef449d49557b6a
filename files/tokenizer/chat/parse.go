package chat

import (
	"fmt"
	"slices"
	"strconv"
)

// maxNesting bounds how deep statements and expressions are nested in each other.
const maxNesting = 100

// A node is a statement; an expression is one of the types in expression.go.
type (
	textNode  struct{ text string }
	valueNode struct{ value expression }
	ifNode    struct {
		condition expression
		then, or  []statement
	}
	forNode struct {
		target    []string
		over      expression
		condition expression // nil: all
		body, or  []statement
	}
	setNode struct {
		targets []target
		value   expression
	}
	setBlock struct {
		target target
		body   []statement
	}
	macroNode struct {
		name     string
		names    []string
		defaults []expression // of the last names
		body     []statement
	}
	blockNode struct{ body []statement } // generation
	jumpNode  struct{ again bool }       // continue, else break
)

// A statement is one of the nodes above, and where it is.
type statement struct {
	line int
	node any
}

// A target is a variable, or a field of a namespace.
type target struct{ name, field string }

type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int
	macros int
	marks  bool // a generation block was read
}

func (p *parser) now() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != endOfTemplate {
		p.at++
	}
	return t
}

func (p *parser) is(k kind, text string) bool { return p.now().kind == k && p.now().text == text }

func (p *parser) skip(k kind, text string) bool {
	if p.is(k, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(k kind, text string) error {
	if !p.skip(k, text) {
		return p.wrong(strconv.Quote(text))
	}
	return nil
}

func (p *parser) wrong(want string) error {
	return fmt.Errorf("%w: line %d: %s where %s should be", ErrSyntax, p.now().line, p.now(), want)
}

func (p *parser) unsupported(feature string) error {
	return fmt.Errorf("%w: line %d: %s", ErrUnsupported, p.now().line, feature)
}

func (p *parser) name() (string, error) {
	if p.now().kind != nameToken {
		return "", p.wrong("a name")
	}
	return p.take().text, nil
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > maxNesting {
		return fmt.Errorf("%w: line %d: it is nested deeper than %d", ErrTooMuch, p.now().line, maxNesting)
	}
	return nil
}

// statements reads up to a tag with one of the given names, which is left where it is after
// its name. Without names that is the end of the template.
func (p *parser) statements(until ...string) (all []statement, end string, err error) {
	if err := p.deeper(); err != nil {
		return nil, "", err
	}
	defer func() { p.depth-- }()
	for {
		t := p.take()
		switch t.kind {
		case textToken:
			all = append(all, statement{t.line, textNode{t.text}})
		case beginValue:
			value, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if p.take().kind != endValue {
				p.at--
				return nil, "", p.wrong("}}")
			}
			all = append(all, statement{t.line, valueNode{value}})
		case beginBlock:
			name, err := p.name()
			if err != nil {
				return nil, "", err
			}
			if slices.Contains(until, name) {
				return all, name, nil
			}
			node, err := p.block(name)
			if err != nil {
				return nil, "", err
			}
			all = append(all, statement{t.line, node})
		case endOfTemplate:
			if len(until) > 0 {
				return nil, "", p.wrong(until[len(until)-1])
			}
			return all, "", nil
		default:
			return nil, "", p.wrong("a statement")
		}
	}
}

func (p *parser) closeBlock() error {
	if p.now().kind != endBlock {
		return p.wrong("%}")
	}
	p.at++
	return nil
}

// body reads statements up to the tag with a name, and that.
func (p *parser) body(end string) ([]statement, error) {
	all, _, err := p.statements(end)
	if err != nil {
		return nil, err
	}
	return all, p.closeBlock()
}

func (p *parser) block(name string) (any, error) {
	switch name {
	case "if":
		return p.ifBlock()
	case "for":
		return p.forBlock()
	case "set":
		return p.setBlock()
	case "macro":
		return p.macroBlock()
	case "generation":
		if err := p.closeBlock(); err != nil {
			return nil, err
		}
		p.marks = true
		body, err := p.body("endgeneration")
		return blockNode{body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, fmt.Errorf("%w: line %d: %s outside of a loop", ErrSyntax, p.now().line, name)
		}
		return jumpNode{name == "continue"}, p.closeBlock()
	}
	return nil, p.unsupported("the tag " + name)
}

func (p *parser) ifBlock() (any, error) {
	condition, err := p.tuple(false)
	if err != nil {
		return nil, err
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	then, end, err := p.statements("elif", "else", "endif")
	if err != nil {
		return nil, err
	}
	node := ifNode{condition: condition, then: then}
	switch end {
	case "elif":
		if err := p.deeper(); err != nil {
			return nil, err
		}
		line := p.now().line
		inner, err := p.ifBlock()
		p.depth--
		node.or = []statement{{line, inner}}
		return node, err
	case "else":
		if err := p.closeBlock(); err != nil {
			return nil, err
		}
		node.or, err = p.body("endif")
		return node, err
	}
	return node, p.closeBlock()
}

func (p *parser) forBlock() (any, error) {
	var node forNode
	for {
		name, err := p.variable()
		if err != nil {
			return nil, err
		}
		node.target = append(node.target, name)
		if !p.skip(operatorToken, ",") {
			break
		}
	}
	err := p.expect(nameToken, "in")
	if err != nil {
		return nil, err
	}
	if node.over, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.skip(nameToken, "if") {
		if node.condition, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.is(nameToken, "recursive") {
		return nil, p.unsupported("recursive loops")
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.statements("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	node.body = body
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	if end == "else" {
		node.or, err = p.body("endfor")
	}
	return node, err
}

// reserved are names that mean something of their own to Jinja.
var reserved = []string{"true", "false", "none", "True", "False", "None", "not", "and", "or", "if", "else", "in", "is", "loop", "self", "super", "caller", "varargs", "kwargs"}

// variable reads a name that something is given to.
func (p *parser) variable() (string, error) {
	name, err := p.name()
	if err == nil && slices.Contains(reserved, name) {
		return "", p.unsupported("a variable of the name " + name)
	}
	return name, err
}

func (p *parser) setBlock() (any, error) {
	var targets []target
	for {
		name, err := p.variable()
		if err != nil {
			return nil, err
		}
		t := target{name: name}
		if p.skip(operatorToken, ".") {
			if t.field, err = p.name(); err != nil {
				return nil, err
			}
		}
		targets = append(targets, t)
		if !p.skip(operatorToken, ",") {
			break
		}
	}
	if p.skip(operatorToken, "=") {
		value, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return setNode{targets, value}, p.closeBlock()
	}
	if p.is(operatorToken, "|") || len(targets) > 1 {
		return nil, p.unsupported("a set block with filters or several variables")
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	body, err := p.body("endset")
	return setBlock{targets[0], body}, err
}

func (p *parser) macroBlock() (any, error) {
	name, err := p.variable()
	if err != nil {
		return nil, err
	}
	node := macroNode{name: name}
	if err := p.expect(operatorToken, "("); err != nil {
		return nil, err
	}
	for !p.skip(operatorToken, ")") {
		if len(node.names) > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return nil, err
			}
		}
		argument, err := p.variable()
		if err != nil {
			return nil, err
		}
		if slices.Contains(node.names, argument) {
			return nil, p.unsupported("two arguments of one name")
		}
		node.names = append(node.names, argument)
		if p.skip(operatorToken, "=") {
			value, err := p.expression()
			if err != nil {
				return nil, err
			}
			node.defaults = append(node.defaults, value)
		} else if len(node.defaults) > 0 {
			return nil, p.wrong("a default")
		}
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	loops := p.loops
	p.loops = 0
	p.macros++
	node.body, err = p.body("endmacro")
	p.loops = loops
	p.macros--
	return node, err
}

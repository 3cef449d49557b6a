package chat

import (
	"fmt"
	"slices"
	"strconv"
)

// Limits of nesting.
const (
	maxDepth   = 400 // statements and expressions; a pair of parentheses counts twice
	maxNesting = 100 // values
)

// A node is a statement; an expression is one of the types in expression.go.
type (
	textNode  struct{ text string }
	valueNode struct {
		value  expression
		escape bool // within the tag autoescape
	}
	ifNode struct {
		condition expression
		then, or  []statement
	}
	forNode struct {
		target    target
		over      expression
		condition expression // nil: all items
		body, or  []statement
		recursive bool
		escape    bool
	}
	setNode struct {
		target target
		value  expression
	}
	setBlock struct {
		target  target
		filters expression // applied to the variable pipedName; nil: none
		body    []statement
		escape  bool
	}
	filterNode struct {
		filters expression // applied to the variable pipedName
		body    []statement
		escape  bool
	}
	escapeNode struct {
		escape bool
		body   []statement
	}
	partNode struct { // the tag block
		body             []statement
		scoped, required bool
	}
	withNode struct {
		targets []target
		values  []expression
		body    []statement
	}
	macroNode struct {
		name     string
		names    []string
		defaults []expression // of the last parameters
		body     []statement
		// Whether the body reads the variables of these names.
		caller, varargs, kwargs bool
	}
	callNode struct {
		call   call
		caller macroNode
	}
	blockNode struct{ of macroNode } // the tag generation, which jinja2 calls like a macro
	jumpNode  struct{ again bool }   // continue, else break
)

// A statement is one of the nodes above with its line.
type statement struct {
	line int
	node any
}

// A target is a variable, a field of a namespace, or several targets that share the parts of a
// value.
type target struct {
	name, field string
	parts       []target
}

// pipedName is the name of the text that filters of a block read. Templates cannot name it.
const pipedName = ""

type parser struct {
	tokens []token
	at     int
	depth  int
	loops  int
	marks  bool            // a generation block was read
	escape bool            // within the tag autoescape
	parts  map[string]bool // names of the tags block
	inPart bool
	// inBlock is set if a tag autoescape, set or filter is between here and the loop around it.
	inBlock  bool
	dynamic  int // variables and calls so far
	frame    *frame
	last     *frame       // frame of the last block that was read
	filtered []filterName // variables in filters of the tag set
	inFilter bool
	// soft is set if the innermost scope is the branch of an if. Elsewhere, jinja2 refuses unknown
	// filters and tests.
	soft    bool
	unknown []string     // errors of unknown filters and tests
	readers []*macroNode // macros around this place
	stored  []map[string]bool
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
	return fmt.Errorf("%w: line %d: unexpected %s, want %s", errSyntax, p.now().line, p.now(), want)
}

func (p *parser) unsupported(feature string) error {
	return fmt.Errorf("%w: line %d: %s", errUnsupported, p.now().line, feature)
}

func (p *parser) name() (string, error) {
	if p.now().kind != nameToken {
		return "", p.wrong("a name")
	}
	return p.take().text, nil
}

func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("%w: line %d: nested deeper than %d", errTooMuch, p.now().line, maxDepth)
	}
	return nil
}

// statements reads up to a tag with one of the given names. It stops after the name of this tag.
// Without names, it reads to the end of the template.
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
			all = append(all, statement{t.line, valueNode{value, p.escape}})
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

// body reads statements up to the tag with a name, and the tag.
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
	case "call":
		return p.callBlock()
	case "filter":
		return p.filterBlock()
	case "with":
		return p.withBlock()
	case "autoescape":
		return p.escapeBlock()
	case "block":
		return p.partBlock()
	case "generation":
		p.marks = true
		var node blockNode
		err := p.macroBody(&node.of, "endgeneration")
		return node, err
	case "break", "continue":
		if p.loops == 0 {
			if p.inBlock {
				return nil, p.unsupported("the tag " + name + " that leaves a tag within a loop")
			}
			return nil, fmt.Errorf("%w: line %d: %s outside of a loop", errSyntax, p.now().line, name)
		}
		return jumpNode{name == "continue"}, p.closeBlock()
	}
	return nil, p.unsupported("the tag " + name)
}

// scoped reads the body of a block whose variables end with the block.
func (p *parser) scoped(end string) ([]statement, error) {
	soft, around := p.soft, p.frame
	p.soft, p.frame = false, newFrame(around)
	body, err := p.body(end)
	p.soft, p.frame, p.last = soft, around, p.frame
	return body, err
}

// separate reads the body of a block that break and continue cannot leave.
func (p *parser) separate(end string) ([]statement, error) {
	loops, inBlock := p.loops, p.inBlock
	p.loops, p.inBlock = 0, inBlock || loops > 0
	body, err := p.scoped(end)
	p.loops, p.inBlock = loops, inBlock
	return body, err
}

func (p *parser) ifBlock() (any, error) {
	soft := p.soft
	p.soft = true
	node, err := p.branches()
	p.soft = soft
	return node, err
}

func (p *parser) branches() (any, error) {
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
		inner, err := p.branches()
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
	var err error
	if node.target, err = p.target(false); err != nil {
		return nil, err
	}
	if err = p.expect(nameToken, "in"); err != nil {
		return nil, err
	}
	if node.over, err = p.tuple(false); err != nil {
		return nil, err
	}
	soft := p.soft
	around := p.frame
	p.soft, p.frame = false, newFrame(around)
	defer func() { p.soft, p.frame = soft, around }()
	if p.skip(nameToken, "if") {
		if node.condition, err = p.expression(); err != nil {
			return nil, err
		}
	}
	node.recursive = p.skip(nameToken, "recursive")
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	inBlock := p.inBlock
	p.loops, p.inBlock, node.escape = p.loops+1, false, p.escape
	body, end, err := p.statements("else", "endfor")
	p.loops, p.inBlock = p.loops-1, inBlock
	if err != nil {
		return nil, err
	}
	node.body = body
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	if end == "else" {
		loops := p.loops
		if node.recursive { // a function in jinja2, which break cannot leave
			p.loops = 0
		}
		node.or, err = p.body("endfor")
		p.loops = loops
	}
	return node, err
}

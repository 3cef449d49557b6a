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

func (p *parser) expect(k kind, text string) {
	if !p.skip(k, text) {
		panic(p.wrong(strconv.Quote(text)))
	}
}

// failed returns an error at the current token. The parser panics with it, and Parse recovers it.
func (p *parser) failed(kind error, format string, args ...any) failure {
	return failure{fmt.Errorf("%w: line %d: %s", kind, p.now().line, fmt.Sprintf(format, args...))}
}

func (p *parser) wrong(want string) failure {
	return p.failed(errSyntax, "unexpected %s, want %s", p.now(), want)
}

func (p *parser) unsupported(feature string) failure { return p.failed(errUnsupported, "%s", feature) }

func (p *parser) tooDeep() failure { return p.failed(errTooMuch, "nested deeper than %d", maxDepth) }

func (p *parser) name() string {
	if p.now().kind != nameToken {
		panic(p.wrong("a name"))
	}
	return p.take().text
}

func (p *parser) deeper() {
	if p.depth++; p.depth > maxDepth {
		panic(p.tooDeep())
	}
}

// statements reads up to a tag with one of the given names. It stops after the name of this tag.
// Without names, it reads to the end of the template.
func (p *parser) statements(until ...string) (all []statement, end string) {
	p.deeper()
	defer func() { p.depth-- }()
	for {
		t := p.take()
		switch t.kind {
		case textToken:
			all = append(all, statement{t.line, textNode{t.text}})
		case beginValue:
			value := p.tuple(true)
			if p.take().kind != endValue {
				p.at--
				panic(p.wrong("}}"))
			}
			all = append(all, statement{t.line, valueNode{value, p.escape}})
		case beginBlock:
			name := p.name()
			if slices.Contains(until, name) {
				return all, name
			}
			all = append(all, statement{t.line, p.block(name)})
		case endOfTemplate:
			if len(until) > 0 {
				panic(p.wrong(until[len(until)-1]))
			}
			return all, ""
		default:
			panic(p.wrong("a statement"))
		}
	}
}

func (p *parser) closeBlock() {
	if p.now().kind != endBlock {
		panic(p.wrong("%}"))
	}
	p.at++
}

// body reads statements up to the tag with a name, and the tag.
func (p *parser) body(end string) []statement {
	all, _ := p.statements(end)
	p.closeBlock()
	return all
}

func (p *parser) block(name string) any {
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
		p.macroBody(&node.of, "endgeneration")
		return node
	case "break", "continue":
		if p.loops == 0 {
			if p.inBlock {
				panic(p.unsupported("the tag " + name + " that leaves a tag within a loop"))
			}
			panic(p.failed(errSyntax, "%s outside of a loop", name))
		}
		p.closeBlock()
		return jumpNode{name == "continue"}
	}
	panic(p.unsupported("the tag " + name))
}

// scoped reads the body of a block whose variables end with the block.
func (p *parser) scoped(end string) []statement {
	soft, around := p.soft, p.frame
	p.soft, p.frame = false, newFrame(around)
	body := p.body(end)
	p.soft, p.frame, p.last = soft, around, p.frame
	return body
}

// separate reads the body of a block that break and continue cannot leave.
func (p *parser) separate(end string) []statement {
	loops, inBlock := p.loops, p.inBlock
	p.loops, p.inBlock = 0, inBlock || loops > 0
	body := p.scoped(end)
	p.loops, p.inBlock = loops, inBlock
	return body
}

func (p *parser) ifBlock() any {
	soft := p.soft
	p.soft = true
	node := p.branches()
	p.soft = soft
	return node
}

func (p *parser) branches() any {
	condition := p.tuple(false)
	p.closeBlock()
	then, end := p.statements("elif", "else", "endif")
	node := ifNode{condition: condition, then: then}
	switch end {
	case "elif":
		p.deeper()
		line := p.now().line
		node.or = []statement{{line, p.branches()}}
		p.depth--
	case "else":
		p.closeBlock()
		node.or = p.body("endif")
	default:
		p.closeBlock()
	}
	return node
}

func (p *parser) forBlock() any {
	var node forNode
	node.target = p.target(false)
	p.expect(nameToken, "in")
	node.over = p.tuple(false)
	soft := p.soft
	around := p.frame
	p.soft, p.frame = false, newFrame(around)
	defer func() { p.soft, p.frame = soft, around }()
	if p.skip(nameToken, "if") {
		node.condition = p.expression()
	}
	node.recursive = p.skip(nameToken, "recursive")
	p.closeBlock()
	inBlock := p.inBlock
	p.loops, p.inBlock, node.escape = p.loops+1, false, p.escape
	body, end := p.statements("else", "endfor")
	p.loops, p.inBlock = p.loops-1, inBlock
	node.body = body
	p.closeBlock()
	if end == "else" {
		loops := p.loops
		if node.recursive { // a function in jinja2, which break cannot leave
			p.loops = 0
		}
		node.or = p.body("endfor")
		p.loops = loops
	}
	return node
}

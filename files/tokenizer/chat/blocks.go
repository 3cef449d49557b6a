package chat

import (
	"fmt"
	"slices"
	"strings"
)

// The variables that jinja2 passes to a macro whose body reads them.
const (
	callerName  = "caller"
	varargsName = "varargs"
	kwargsName  = "kwargs"
)

// reserved are names that Jinja cannot assign.
var reserved = []string{"true", "false", "none", "True", "False", "None", "not", "and", "or", "if", "else", "in", "is", "self"}

// variable reads the name of an assigned variable.
func (p *parser) variable() string {
	name := p.name()
	if slices.Contains(reserved, name) {
		panic(p.unsupported("a variable named " + name))
	}
	p.store(name)
	return name
}

// frame has the variables that a block names outside of its inner blocks.
type frame struct {
	named  map[string]bool
	around *frame
}

// filterName is a variable in a filter of the tag set. frame is the frame of the tag's body. jinja2
// finds the variable only if the body, or a block around it, also names the variable.
type filterName struct {
	name  string
	frame *frame
}

func newFrame(around *frame) *frame { return &frame{map[string]bool{}, around} }

// names reports whether the block, or a block around it, names a variable.
func (f *frame) names(name string) bool {
	for ; f != nil; f = f.around {
		if f.named[name] {
			return true
		}
	}
	return false
}

// load records that the macros around this place read a variable.
func (p *parser) load(name string) {
	if p.dynamic++; p.inFilter {
		p.filtered = append(p.filtered, filterName{name, nil})
	} else {
		p.frame.named[name] = true
	}
	for i, m := range p.readers {
		if p.stored[i][name] {
			continue
		}
		m.caller = m.caller || name == callerName
		m.varargs = m.varargs || name == varargsName
		m.kwargs = m.kwargs || name == kwargsName
	}
}

// store records that the macros around this place assign a variable.
func (p *parser) store(name string) {
	p.frame.named[name] = true
	for i := range p.readers {
		p.stored[i][name] = true
	}
}

// target reads the left side of an assignment. fields allows fields of namespaces.
func (p *parser) target(fields bool) target {
	first := p.oneTarget(fields)
	if !p.is(operatorToken, ",") {
		return first
	}
	several := target{parts: []target{first}}
	for p.skip(operatorToken, ",") {
		if p.is(operatorToken, ")") {
			break
		}
		several.parts = append(several.parts, p.oneTarget(fields))
	}
	return several
}

func (p *parser) oneTarget(fields bool) (t target) {
	p.deeper()
	defer func() { p.depth-- }()
	if p.skip(operatorToken, "(") {
		t = p.target(fields)
		p.expect(operatorToken, ")")
		return t
	}
	if t.name = p.variable(); fields && p.skip(operatorToken, ".") {
		t.field = p.name()
	}
	return t
}

func (p *parser) setBlock() any {
	to := p.target(true)
	if p.skip(operatorToken, "=") {
		value := p.tuple(true)
		p.closeBlock()
		return setNode{to, value}
	}
	node := setBlock{target: to, escape: p.escape}
	first := len(p.filtered)
	if p.is(operatorToken, "|") {
		p.inFilter = true
		node.filters = p.filters(variable{pipedName})
		p.inFilter = false
	}
	p.closeBlock()
	node.body = p.separate("endset")
	for i := range p.filtered {
		if p.filtered[i].frame == nil && i >= first {
			p.filtered[i].frame = p.last
		}
	}
	return node
}

func (p *parser) filterBlock() any {
	node := filterNode{filters: p.filters(p.filterAfter(variable{pipedName})), escape: p.escape}
	p.closeBlock()
	node.body = p.separate("endfilter")
	return node
}

// escapeBlock reads the tag autoescape.
func (p *parser) escapeBlock() any {
	requested, isConstant := p.expression().(constant)
	if !isConstant {
		panic(p.unsupported("the tag autoescape with a value that is not a constant"))
	}
	p.closeBlock()
	escape := p.escape
	p.escape = truth(requested.value)
	node := escapeNode{escape: p.escape}
	node.body = p.separate("endautoescape")
	p.escape = escape
	return node
}

// partBlock reads the tag block. Templates have no parents here, so a block is rendered in its
// place.
func (p *parser) partBlock() any {
	name := p.name()
	if p.parts[name] {
		panic(p.failed(errSyntax, "two blocks named %s", name))
	}
	if p.parts == nil {
		p.parts = map[string]bool{}
	}
	p.parts[name] = true
	var node partNode
	node.scoped = p.skip(nameToken, "scoped")
	node.required = p.skip(nameToken, "required")
	p.closeBlock()
	escape, inPart, inBlock, readers, stored := p.escape, p.inPart, p.inBlock, p.readers, p.stored
	p.escape, p.inPart, p.inBlock, p.readers, p.stored = false, true, false, nil, nil
	loops, soft, around := p.loops, p.soft, p.frame
	p.loops, p.soft, p.frame = 0, false, newFrame(nil)
	node.body, _ = p.statements("endblock")
	p.escape, p.inPart, p.inBlock, p.readers, p.stored = escape, inPart, inBlock, readers, stored
	p.loops, p.soft, p.frame = loops, soft, around
	p.skip(nameToken, name)
	for _, one := range node.body {
		text, isText := one.node.(textNode)
		if node.required && (!isText || strings.TrimFunc(text.text, isSpace) != "") {
			panic(failure{fmt.Errorf("%w: line %d: a required block with a body", errSyntax, one.line)})
		}
	}
	p.closeBlock()
	return node
}

func (p *parser) withBlock() any {
	var node withNode
	for p.now().kind != endBlock {
		if len(node.targets) > 0 {
			p.expect(operatorToken, ",")
		}
		to := p.target(false)
		p.expect(operatorToken, "=")
		node.targets, node.values = append(node.targets, to), append(node.values, p.expression())
	}
	p.closeBlock()
	node.body = p.scoped("endwith")
	return node
}

func (p *parser) macroBlock() any {
	node := macroNode{name: p.variable()}
	p.signature(&node)
	p.macroBody(&node, "endmacro")
	return node
}

// signature reads the parameters of a macro.
func (p *parser) signature(node *macroNode) {
	p.expect(operatorToken, "(")
	for !p.skip(operatorToken, ")") {
		if len(node.names) > 0 {
			p.expect(operatorToken, ",")
		}
		parameter := p.variable()
		if slices.Contains(node.names, parameter) || parameter == callerName {
			panic(p.unsupported("two parameters with the same name, or a parameter named caller"))
		}
		node.names = append(node.names, parameter)
		if p.skip(operatorToken, "=") {
			node.defaults = append(node.defaults, p.expression())
		} else if len(node.defaults) > 0 {
			panic(p.wrong("a default"))
		}
	}
}

// macroBody reads the body of a macro, and records whether it reads the variables that jinja2
// passes.
func (p *parser) macroBody(node *macroNode, end string) {
	p.closeBlock()
	p.readers, p.stored = append(p.readers, node), append(p.stored, map[string]bool{})
	node.body = p.separate(end)
	p.readers, p.stored = p.readers[:len(p.readers)-1], p.stored[:len(p.stored)-1]
	node.kwargs = node.kwargs && !slices.Contains(node.names, kwargsName)
	node.varargs = node.varargs && !slices.Contains(node.names, varargsName)
}

func (p *parser) callBlock() any {
	node := callNode{caller: macroNode{}}
	if p.is(operatorToken, "(") {
		p.signature(&node.caller)
	}
	var isCall bool
	if node.call, isCall = p.expression().(call); !isCall {
		panic(p.wrong("a call"))
	}
	p.macroBody(&node.caller, "endcall")
	return node
}

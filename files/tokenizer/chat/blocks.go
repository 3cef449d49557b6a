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
func (p *parser) variable() (string, error) {
	name, err := p.name()
	if err == nil && slices.Contains(reserved, name) {
		return "", p.unsupported("a variable named " + name)
	}
	p.store(name)
	return name, err
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
func (p *parser) target(fields bool) (target, error) {
	first, err := p.oneTarget(fields)
	if err != nil || !p.is(operatorToken, ",") {
		return first, err
	}
	several := target{parts: []target{first}}
	for p.skip(operatorToken, ",") {
		if p.is(operatorToken, ")") {
			break
		}
		next, err := p.oneTarget(fields)
		if err != nil {
			return target{}, err
		}
		several.parts = append(several.parts, next)
	}
	return several, nil
}

func (p *parser) oneTarget(fields bool) (t target, err error) {
	if err := p.deeper(); err != nil {
		return t, err
	}
	defer func() { p.depth-- }()
	if p.skip(operatorToken, "(") {
		if t, err = p.target(fields); err != nil {
			return t, err
		}
		return t, p.expect(operatorToken, ")")
	}
	if t.name, err = p.variable(); err == nil && fields && p.skip(operatorToken, ".") {
		t.field, err = p.name()
	}
	return t, err
}

func (p *parser) setBlock() (any, error) {
	to, err := p.target(true)
	if err != nil {
		return nil, err
	}
	if p.skip(operatorToken, "=") {
		value, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return setNode{to, value}, p.closeBlock()
	}
	node := setBlock{target: to, escape: p.escape}
	first := len(p.filtered)
	if p.is(operatorToken, "|") {
		p.inFilter = true
		node.filters, err = p.filters(variable{pipedName})
		if p.inFilter = false; err != nil {
			return nil, err
		}
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	node.body, err = p.separate("endset")
	for i := range p.filtered {
		if p.filtered[i].frame == nil && i >= first {
			p.filtered[i].frame = p.last
		}
	}
	return node, err
}

func (p *parser) filterBlock() (any, error) {
	first, err := p.filterAfter(variable{pipedName})
	if err != nil {
		return nil, err
	}
	var node filterNode
	if node.filters, err = p.filters(first); err != nil {
		return nil, err
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	node.escape = p.escape
	node.body, err = p.separate("endfilter")
	return node, err
}

// escapeBlock reads the tag autoescape.
func (p *parser) escapeBlock() (any, error) {
	var node escapeNode
	value, err := p.expression()
	if err != nil {
		return nil, err
	}
	asked, isConstant := value.(constant)
	if !isConstant {
		return nil, p.unsupported("the tag autoescape with a value that is not a constant")
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	escape := p.escape
	p.escape = truth(asked.value)
	node.escape = p.escape
	node.body, err = p.separate("endautoescape")
	p.escape = escape
	return node, err
}

// partBlock reads the tag block. Templates have no parents here, so a block is rendered in its
// place.
func (p *parser) partBlock() (any, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if p.parts[name] {
		return nil, fmt.Errorf("%w: line %d: two blocks named %s", errSyntax, p.now().line, name)
	}
	if p.parts == nil {
		p.parts = map[string]bool{}
	}
	p.parts[name] = true
	var node partNode
	node.scoped = p.skip(nameToken, "scoped")
	node.required = p.skip(nameToken, "required")
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	escape, inPart, inBlock, readers, stored := p.escape, p.inPart, p.inBlock, p.readers, p.stored
	p.escape, p.inPart, p.inBlock, p.readers, p.stored = false, true, false, nil, nil
	loops, soft, around := p.loops, p.soft, p.frame
	p.loops, p.soft, p.frame = 0, false, newFrame(nil)
	node.body, _, err = p.statements("endblock")
	p.escape, p.inPart, p.inBlock, p.readers, p.stored = escape, inPart, inBlock, readers, stored
	p.loops, p.soft, p.frame = loops, soft, around
	if err != nil {
		return nil, err
	}
	p.skip(nameToken, name)
	for _, one := range node.body {
		text, isText := one.node.(textNode)
		if node.required && (!isText || strings.TrimFunc(text.text, isSpace) != "") {
			return nil, fmt.Errorf("%w: line %d: a required block with a body", errSyntax, one.line)
		}
	}
	return node, p.closeBlock()
}

func (p *parser) withBlock() (any, error) {
	var node withNode
	for p.now().kind != endBlock {
		if len(node.targets) > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return nil, err
			}
		}
		to, err := p.target(false)
		if err != nil {
			return nil, err
		}
		if err := p.expect(operatorToken, "="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		node.targets, node.values = append(node.targets, to), append(node.values, value)
	}
	if err := p.closeBlock(); err != nil {
		return nil, err
	}
	var err error
	node.body, err = p.scoped("endwith")
	return node, err
}

func (p *parser) macroBlock() (any, error) {
	name, err := p.variable()
	if err != nil {
		return nil, err
	}
	node := macroNode{name: name}
	if err := p.signature(&node); err != nil {
		return nil, err
	}
	err = p.macroBody(&node, "endmacro")
	return node, err
}

// signature reads the parameters of a macro.
func (p *parser) signature(node *macroNode) error {
	if err := p.expect(operatorToken, "("); err != nil {
		return err
	}
	for !p.skip(operatorToken, ")") {
		if len(node.names) > 0 {
			if err := p.expect(operatorToken, ","); err != nil {
				return err
			}
		}
		parameter, err := p.variable()
		if err != nil {
			return err
		}
		if slices.Contains(node.names, parameter) || parameter == callerName {
			return p.unsupported("two parameters with the same name, or a parameter named caller")
		}
		node.names = append(node.names, parameter)
		if p.skip(operatorToken, "=") {
			value, err := p.expression()
			if err != nil {
				return err
			}
			node.defaults = append(node.defaults, value)
		} else if len(node.defaults) > 0 {
			return p.wrong("a default")
		}
	}
	return nil
}

// macroBody reads the body of a macro, and records whether it reads the variables that jinja2
// passes.
func (p *parser) macroBody(node *macroNode, end string) (err error) {
	if err := p.closeBlock(); err != nil {
		return err
	}
	p.readers, p.stored = append(p.readers, node), append(p.stored, map[string]bool{})
	node.body, err = p.separate(end)
	p.readers, p.stored = p.readers[:len(p.readers)-1], p.stored[:len(p.stored)-1]
	node.kwargs = node.kwargs && !slices.Contains(node.names, kwargsName)
	node.varargs = node.varargs && !slices.Contains(node.names, varargsName)
	return err
}

func (p *parser) callBlock() (any, error) {
	node := callNode{caller: macroNode{}}
	if p.is(operatorToken, "(") {
		if err := p.signature(&node.caller); err != nil {
			return nil, err
		}
	}
	called, err := p.expression()
	if err != nil {
		return nil, err
	}
	var isCall bool
	if node.call, isCall = called.(call); !isCall {
		return nil, p.wrong("a call")
	}
	err = p.macroBody(&node.caller, "endcall")
	return node, err
}

package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits for rendering a template.
const (
	maxSteps  = 2 << 20
	maxWork   = 64 << 20 // total bytes of the texts and lists that it creates
	maxMacros = 100      // nested macros, recursive loops and iterators
	maxEvals  = 50_000   // nested expressions, also of nested macros
)

// A Template is a parsed chat template. It is immutable and may be used concurrently.
type Template struct {
	body   []statement
	marks  bool    // the template marks some text as generated
	tokens []token // tokens of its source
}

// A Message is a part of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	// Kind is zero if Content is the content, which may be empty.
	Kind ContentKind `json:"-"`
	// Calls are the calls of tools by an assistant: a list of objects, as JSON, or null. nil means that the message has
	// no such field.
	Calls json.RawMessage `json:"tool_calls,omitempty"`
	// CallID is the id of the call that a tool answers, and Name the name of the author or the tool: a string, as
	// JSON, or null. nil means that the message has no such field.
	CallID json.RawMessage `json:"tool_call_id,omitempty"`
	Name   json.RawMessage `json:"name,omitempty"`
	// Masked excludes an answer of the assistant from the text that EncodeForTraining marks as
	// learned.
	Masked bool `json:"-"`
}

// A ContentKind selects the value of a message's content in templates.
type ContentKind uint8

// Kinds of contents. Templates distinguish an empty text, none and undefined, as in transformers.
const (
	TextContent ContentKind = iota // a text
	NullContent                    // null in JSON: none
	NoContent                      // no field: undefined
)

// Input is the data for rendering a template.
type Input struct {
	Messages            []Message
	AddGenerationPrompt bool              // end with the start of the model's answer
	Tools               json.RawMessage   // tools for the assistant: a list of objects; nil: none
	Tokens              map[string]string // bos_token, eos_token and the other tokens that the tokenizer names
	Now                 time.Time         // result of strftime_now; zero means that strftime_now is an error
}

// Parse reads a template. Errors wrap errSyntax, errUnsupported or errTooMuch and name the line.
func Parse(source string) (t *Template, err error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	defer func() {
		if value := recover(); value != nil {
			err = caught(value)
		}
	}()
	p := &parser{tokens: tokens, frame: newFrame(nil)}
	body, _ := p.statements()
	if len(p.unknown) > 0 {
		return nil, fmt.Errorf("%w: %s", errSyntax, p.unknown[0])
	}
	for _, one := range p.filtered {
		if !one.frame.names(one.name) {
			return nil, fmt.Errorf("%w: the variable %s only in a filter of the tag set", errUnsupported, one.name)
		}
	}
	return &Template{body, p.marks, tokens}, nil
}

// Render returns the text of a conversation. Errors wrap ErrTemplate, errUnsupported or errTooMuch.
// If the template calls raise_exception, the error wraps ErrTemplate.
func (t *Template) Render(in Input) (text string, err error) {
	text, _, err = t.render(in)
	return text, err
}

// span is a part of a text: the bytes from start to before end.
type span struct{ start, end int }

// render returns the text of a conversation, and the spans that the template marks as generated.
func (t *Template) render(in Input) (text string, marked []span, err error) {
	return t.renderWithin(in, maxSteps, maxWork)
}

// renderWithin is render with limits on steps, and on the bytes of texts and lists.
func (t *Template) renderWithin(in Input, steps, work int) (text string, marked []span, err error) {
	r := &renderer{now: in.Now, steps: steps, work: work}
	defer func() {
		if value := recover(); value != nil {
			text, marked, err = "", nil, caught(value)
			if r.line > 0 { // 0: the input is invalid
				err = fmt.Errorf("%w (line %d)", err, r.line)
			}
		}
	}()
	top := &scope{values: map[string]any{}}
	for name, token := range in.Tokens {
		top.values[name] = checked(r, token)
	}
	messages := &list{}
	for _, m := range in.Messages {
		messages.items = append(messages.items, r.message(m))
	}
	top.values["messages"] = messages
	top.values["add_generation_prompt"] = in.AddGenerationPrompt
	top.values["tools"], top.values["documents"] = r.list("tools", in.Tools), nil
	r.out = r.buffer()
	r.whole, r.blocks = r.out, top
	if left := r.all(t.body, top); left != nil {
		return "", nil, fmt.Errorf("%w: %w outside of a loop", errSyntax, left)
	}
	return r.out.String(), r.marked, nil
}

func checked(r *renderer, text string) string {
	if !utf8.ValidString(text) {
		r.wrong("a message that is not UTF-8")
	}
	return text
}

// failure carries an error out of the parser or the renderer.
type failure struct{ error }

// caught returns the error of a recovered failure. It continues any other panic.
func caught(value any) error {
	failed, ours := value.(failure)
	if !ours {
		panic(value)
	}
	return failed.error
}

type renderer struct {
	now    time.Time
	out    *buffer
	whole  *buffer // out, except within macros and set blocks
	marked []span  // of whole; texts marked elsewhere have no position yet
	line   int
	steps  int // remaining steps
	work   int // remaining bytes
	macros int
	nested int    // expressions that are being evaluated
	escape bool   // within the tag autoescape
	blocks *scope // variables of the tag block
}

func (r *renderer) wrong(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrTemplate, fmt.Sprintf(format, args...))})
}

func (r *renderer) unsupported(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", errUnsupported, fmt.Sprintf(format, args...))})
}

func (r *renderer) tooMuch(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", errTooMuch, fmt.Sprintf(format, args...))})
}

func (r *renderer) step(n int) {
	if r.steps -= n; r.steps < 0 {
		r.tooMuch("more than %d steps", maxSteps)
	}
}

// spend counts bytes before they are created or read.
func (r *renderer) spend(n int) {
	if n > r.work {
		r.tooMuch("more than %d MiB of text", maxWork>>20)
	}
	r.work -= n
}

// read counts the bytes of a text before they are read. Other values cost nothing.
func (r *renderer) read(value any) {
	text, _ := str(value)
	r.spend(len(text))
}

// buffer is a growing text, within the limits.
type buffer struct {
	r *renderer
	strings.Builder
}

func (r *renderer) buffer() *buffer { return &buffer{r: r} }

func (b *buffer) add(text string) {
	b.r.spend(len(text))
	b.WriteString(text)
}

// scope holds variables. The variables of outer scopes can be read.
type scope struct {
	values map[string]any
	parent *scope
}

func (s *scope) inner() *scope { return &scope{map[string]any{}, s} }

// get returns the value of a variable, and the number of inner scopes that do not have it.
func (s *scope) get(name string) (value any, scopes int, found bool) {
	for ; s != nil; s = s.parent {
		if value, found := s.values[name]; found {
			return value, scopes, true
		}
		scopes++
	}
	return nil, scopes, false
}

// Ways to leave a block.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// all executes statements. It returns errBreak or errContinue if they leave a loop.
func (r *renderer) all(body []statement, s *scope) error {
	for _, one := range body {
		r.line = one.line
		r.step(1)
		switch node := one.node.(type) {
		case textNode:
			r.out.add(node.text)
		case valueNode:
			value := r.eval(node.value, s)
			if node.escape {
				value = r.escaped(value)
			}
			r.out.add(r.text(value))
		case ifNode:
			chosen := node.or
			if truth(r.eval(node.condition, s)) {
				chosen = node.then
			}
			if jump := r.all(chosen, s); jump != nil {
				return jump
			}
		case forNode:
			if jump := r.loop(node, s); jump != nil {
				return jump
			}
		case setNode:
			r.assign(node.target, r.eval(node.value, s), s)
		case setBlock:
			value := r.filtered(node.body, node.filters, node.escape, s)
			if r.escape {
				value = markup(r.text(value))
			}
			r.assign(node.target, value, s)
		case filterNode:
			r.write(r.filtered(node.body, node.filters, node.escape, s))
		case macroNode:
			s.values[node.name] = &macro{node, s}
		case callNode:
			r.callBlock(node, s)
		case withNode:
			if jump := r.with(node, s); jump != nil {
				return jump
			}
		case escapeNode:
			r.autoescape(node, s)
		case partNode:
			r.writePart(node, s)
		case blockNode:
			r.generation(node, s)
		case jumpNode:
			if node.again {
				return errContinue
			}
			return errBreak
		}
	}
	return nil
}

// filtered returns the text of a block, or the value of the filters for the text.
func (r *renderer) filtered(body []statement, filters expression, escape bool, s *scope) any {
	inner := s.inner()
	text := r.captured(func() { _ = r.all(body, inner) })
	if filters == nil {
		return text
	}
	inner.values[pipedName] = text
	if escape {
		inner.values[pipedName] = markup(text)
	}
	return r.eval(filters, inner)
}

// with executes a block whose variables end with the block.
func (r *renderer) with(node withNode, s *scope) error {
	inner := s.inner()
	for i, value := range node.values {
		r.assign(node.targets[i], r.eval(value, s), inner)
	}
	return r.all(node.body, inner)
}

// generation executes a block whose text a template marks as generated.
func (r *renderer) generation(node blockNode, s *scope) {
	start, inner := r.out.Len(), s.inner()
	node.of.special(inner, undefined{callerName}, newDict(), nil)
	_ = r.all(node.of.body, inner)
	if end := r.out.Len(); r.out == r.whole && end > start {
		r.marked = append(r.marked, span{start, end})
	}
}

// captured returns the text that a function writes.
func (r *renderer) captured(write func()) string {
	before := r.out
	r.out = r.buffer()
	write()
	text := r.out.String()
	r.out = before
	return text
}

// assign assigns to a variable, to a field of a namespace, or to several of them.
func (r *renderer) assign(t target, value any, s *scope) {
	switch {
	case t.parts != nil:
		parts := r.each(value)
		if len(parts) != len(t.parts) {
			r.wrong("%d values for %d variables", len(parts), len(t.parts))
		}
		for i, part := range t.parts {
			r.assign(part, parts[i], s)
		}
	case t.field == "":
		s.values[t.name] = value
	default:
		holder, isNamespace := r.lookup(t.name, s).(*namespace)
		if !isNamespace {
			r.wrong("%s is not a namespace, so %s.%s cannot be set", t.name, t.name, t.field)
		}
		r.checkField(t.field)
		holder.fields.field(t.field, value)
	}
}

// checkField refuses names that transformers does not store in a namespace.
func (r *renderer) checkField(name string) {
	if strings.HasPrefix(name, "_") {
		r.wrong("a namespace cannot have the field %.40s", name)
	}
}

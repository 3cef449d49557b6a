package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a template that is computed.
const (
	maxSteps  = 2 << 20
	maxWork   = 64 << 20 // bytes of texts and lists that it makes, all together
	maxMacros = 32       // that call each other
)

// A Template is a chat template that was read. It is immutable and may be used concurrently.
type Template struct {
	body  []statement
	marks bool // some of it is marked as what the model generates
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
	// Masked keeps EncodeForTraining from marking an answer of the assistant as learned.
	Masked bool `json:"-"`
}

// A ContentKind selects what templates see as the content of a message.
type ContentKind uint8

// Kinds of contents. Templates distinguish an empty text, none and undefined, as in transformers.
const (
	TextContent ContentKind = iota // a text
	NullContent                    // null in JSON: none
	NoContent                      // no field: undefined
)

// Input is what a template is computed over.
type Input struct {
	Messages            []Message
	AddGenerationPrompt bool              // end where the model's answer begins
	Tools               json.RawMessage   // what the assistant may use: a list of objects; nil: nothing
	Tokens              map[string]string // bos_token, eos_token and others that the tokenizer names
	Now                 time.Time         // what strftime_now says; zero: it is an error
}

// Parse reads a template. Errors wrap ErrSyntax, ErrUnsupported or ErrTooMuch and name the line.
func Parse(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.statements()
	if err != nil {
		return nil, err
	}
	return &Template{body, p.marks}, nil
}

// Render returns the text of a conversation. Errors wrap ErrTemplate, which includes what the
// template refuses by raise_exception, ErrUnsupported or ErrTooMuch.
func (t *Template) Render(in Input) (text string, err error) {
	text, _, err = t.render(in)
	return text, err
}

// span is a part of a text, from one byte to before another.
type span struct{ start, end int }

// render returns the text of a conversation, and what of it the template marks as generated.
func (t *Template) render(in Input) (text string, marked []span, err error) {
	r := &renderer{now: in.Now}
	defer func() {
		if value := recover(); value != nil {
			failed, ours := value.(failure)
			if !ours {
				panic(value)
			}
			text, marked, err = "", nil, fmt.Errorf("%w (line %d)", failed.error, r.line)
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
	r.whole = r.out
	if left := r.all(t.body, top); left != nil {
		return "", nil, fmt.Errorf("%w: %w outside of a loop", ErrSyntax, left)
	}
	return r.out.String(), r.marked, nil
}

func checked(r *renderer, text string) string {
	if !utf8.ValidString(text) {
		r.wrong("a message that is not UTF-8")
	}
	return text
}

// failure is an error on its way out of a template.
type failure struct{ error }

type renderer struct {
	now    time.Time
	out    *buffer
	whole  *buffer // out, but within macros and set blocks
	marked []span  // of whole; what is marked elsewhere is nowhere yet
	line   int
	steps  int
	work   int
	macros int
}

func (r *renderer) wrong(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrTemplate, fmt.Sprintf(format, args...))})
}

func (r *renderer) unsupported(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))})
}

func (r *renderer) tooMuch(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrTooMuch, fmt.Sprintf(format, args...))})
}

func (r *renderer) step(n int) {
	if r.steps += n; r.steps > maxSteps {
		r.tooMuch("more than %d steps", maxSteps)
	}
}

// spend counts bytes that are about to be made or read.
func (r *renderer) spend(n int) {
	if n > maxWork || r.work+n > maxWork {
		r.tooMuch("more than %d MiB of text", maxWork>>20)
	}
	r.work += n
}

// buffer is a text in the making, within the bounds.
type buffer struct {
	r *renderer
	strings.Builder
}

func (r *renderer) buffer() *buffer { return &buffer{r: r} }

func (b *buffer) add(text string) {
	b.r.spend(len(text))
	b.WriteString(text)
}

// scope holds variables. Those of the scopes around it can be read.
type scope struct {
	values map[string]any
	parent *scope
}

func (s *scope) inner() *scope { return &scope{map[string]any{}, s} }

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if value, found := s.values[name]; found {
			return value, true
		}
	}
	return nil, false
}

// errJump tells how a block was left.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// all executes statements. It returns errBreak or errContinue where they leave a loop.
func (r *renderer) all(body []statement, s *scope) error {
	for _, one := range body {
		r.line = one.line
		r.step(1)
		switch node := one.node.(type) {
		case textNode:
			r.out.add(node.text)
		case valueNode:
			r.out.add(r.text(r.eval(node.value, s)))
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
			r.set(node, s)
		case setBlock:
			text := r.captured(func() { _ = r.all(node.body, s.inner()) })
			r.assign(node.target, text, s)
		case macroNode:
			s.values[node.name] = &macro{node, s}
		case blockNode:
			start := r.out.Len()
			jump := r.all(node.body, s.inner())
			if end := r.out.Len(); r.out == r.whole && end > start {
				r.marked = append(r.marked, span{start, end})
			}
			if jump != nil {
				return jump
			}
		case jumpNode:
			if node.again {
				return errContinue
			}
			return errBreak
		}
	}
	return nil
}

// captured returns what a function writes.
func (r *renderer) captured(write func()) string {
	before := r.out
	r.out = r.buffer()
	write()
	text := r.out.String()
	r.out = before
	return text
}

func (r *renderer) set(node setNode, s *scope) {
	value := r.eval(node.value, s)
	if len(node.targets) == 1 {
		r.assign(node.targets[0], value, s)
		return
	}
	parts := r.each(value)
	if len(parts) != len(node.targets) {
		r.wrong("%d values for %d variables", len(parts), len(node.targets))
	}
	for i, target := range node.targets {
		r.assign(target, parts[i], s)
	}
}

func (r *renderer) assign(t target, value any, s *scope) {
	if t.field == "" {
		s.values[t.name] = value
		return
	}
	holder, _ := r.lookup(t.name, s).(*namespace)
	if holder == nil {
		r.wrong("%s is no namespace, so %s.%s cannot be set", t.name, t.name, t.field)
	}
	holder.fields.set(t.field, value)
}

func (r *renderer) loop(node forNode, s *scope) error {
	items := r.each(r.eval(node.over, s))
	bind := func(item any) *scope {
		r.step(1)
		inner := s.inner()
		if len(node.target) == 1 {
			inner.values[node.target[0]] = item
			return inner
		}
		parts := r.each(item)
		if len(parts) != len(node.target) {
			r.wrong("%d values for %d variables", len(parts), len(node.target))
		}
		for i, name := range node.target {
			inner.values[name] = parts[i]
		}
		return inner
	}
	if node.condition != nil {
		var kept []any
		for _, item := range items {
			if truth(r.eval(node.condition, bind(item))) {
				kept = append(kept, item)
			}
		}
		items = kept
	}
	if len(items) == 0 {
		return r.all(node.or, s.inner())
	}
	around := &loop{items: items}
	for i, item := range items {
		around.at = i
		inner := bind(item)
		inner.values["loop"] = around
		if left := r.all(node.body, inner); errors.Is(left, errBreak) {
			break
		}
	}
	return nil
}

// call computes a macro.
func (r *renderer) macro(m *macro, placed []any, names []string, named []any) any {
	if r.macros++; r.macros > maxMacros {
		r.tooMuch("more than %d macros that call each other", maxMacros)
	}
	inner := m.scope.inner()
	node := m.node
	if len(placed) > len(node.names) {
		r.wrong("macro %s takes %d arguments, not %d", node.name, len(node.names), len(placed))
	}
	for i, name := range names {
		at := slices.Index(node.names, name)
		if at < 0 || at < len(placed) {
			r.wrong("macro %s does not take the argument %s, or takes it twice", node.name, name)
		}
		inner.values[name] = named[i]
	}
	for i, value := range placed {
		inner.values[node.names[i]] = value
	}
	for i, name := range node.names {
		if _, given := inner.values[name]; given {
			continue
		}
		inner.values[name] = undefined{name}
		if d := i - (len(node.names) - len(node.defaults)); d >= 0 {
			inner.values[name] = r.eval(node.defaults[d], inner)
		}
	}
	line := r.line
	text := r.captured(func() { _ = r.all(node.body, inner) })
	r.line = line
	r.macros--
	return text
}

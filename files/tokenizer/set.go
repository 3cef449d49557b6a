package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxSets is the maximum nesting depth of sets.
const maxSets = 8

// set translates a bracketed set of characters. Nested sets and intersections, which regexp2 does
// not support, become alternatives of sets and look-aheads.
func (t *translator) set() error {
	read, err := t.readSet(0)
	if err != nil {
		return err
	}
	expression, err := read.expression()
	t.write(expression)
	return err
}

// charSet is a set of characters: the intersection of its operands.
type charSet struct {
	negated  bool
	operands []operand
}

// operand is the union of a body's characters, as between brackets, and of expressions.
type operand struct {
	body        string
	expressions []string
}

// add adds the characters of a class, or of its complement.
func (o *operand) add(t *translator, body string, negated bool) {
	if negated {
		o.expressions = append(o.expressions, bracketed(body, true))
		return
	}
	t.write(body)
}

func (o operand) expression() (string, error) {
	all := o.expressions
	if o.body != "" {
		all = append([]string{"[" + o.body + "]"}, all...)
	}
	switch len(all) {
	case 0:
		return "", errors.New("a set without characters")
	case 1:
		return all[0], nil
	}
	return "(?:" + strings.Join(all, "|") + ")", nil
}

// body returns a set as a part of the body of another set, if that is possible.
func (s charSet) body() (string, bool) {
	only := s.operands[0]
	plain := !s.negated && len(s.operands) == 1 && len(only.expressions) == 0 && only.body != ""
	return only.body, plain && !strings.HasPrefix(only.body, "-") && !strings.HasSuffix(only.body, "-")
}

// expression returns an expression that matches a character of the set.
func (s charSet) expression() (string, error) {
	if only := s.operands[0]; s.negated && len(s.operands) == 1 && len(only.expressions) == 0 && only.body != "" {
		return "[^" + only.body + "]", nil
	}
	parts := make([]string, len(s.operands))
	for i, o := range s.operands {
		var err error
		if parts[i], err = o.expression(); err != nil {
			return "", err
		}
	}
	all := parts[len(parts)-1]
	for _, part := range slices.Backward(parts[:len(parts)-1]) {
		all = "(?=" + part + ")" + all
	}
	switch {
	case s.negated:
		all = `(?:(?!` + all + `)[\s\S])`
	case len(parts) > 1:
		all = "(?:" + all + ")"
	}
	return all, nil
}

// readSet parses the set at the current position. It writes bodies to the output, and finally
// restores the output.
func (t *translator) readSet(depth int) (s charSet, err error) {
	if depth > maxSets {
		return s, fmt.Errorf("sets nested deeper than %d", maxSets)
	}
	start := len(t.out)
	defer func() { t.out = t.out[:start] }()
	t.rest = t.rest[1:]
	if strings.HasPrefix(t.rest, "^") {
		s.negated, t.rest = true, t.rest[1:]
	}
	var now operand
	end := func() {
		now.body = string(t.out[start:])
		s.operands, now, t.out = append(s.operands, now), operand{}, t.out[:start]
	}
	// dash, joint and class describe the previous item: a - that makes a range, an item that a - must
	// not follow, a class.
	dash, joint, class := false, false, false
	for first := true; ; first = false {
		if joint && strings.HasPrefix(t.rest, "-") || dash && (strings.HasPrefix(t.rest, "[") || strings.HasPrefix(t.rest, "&&")) {
			return s, errors.New("a - next to a set within a set")
		}
		bare := strings.HasPrefix(t.rest, "-") && (first || strings.HasPrefix(t.rest, "-]"))
		if class && strings.HasPrefix(t.rest, "-") && !bare {
			return s, errors.New("a range from a class of characters")
		}
		ranged := dash
		dash, joint, class = strings.HasPrefix(t.rest, "-") && !bare, false, false
		switch {
		case t.rest == "":
			return s, errors.New("a set without its end")
		case t.rest[0] == ']' && !first:
			t.rest = t.rest[1:]
			end()
			return s, nil
		case bare:
			t.rest = t.rest[1:]
			t.write(`\-`)
		case strings.HasPrefix(t.rest, "[:"):
			body, negated, err := t.namedSet()
			if err != nil {
				return s, err
			}
			class = true
			now.add(t, body, negated)
		case strings.HasPrefix(t.rest, "&&"):
			t.rest, joint = t.rest[2:], true
			end()
		case t.rest[0] == '[':
			inner, err := t.readSet(depth + 1)
			if err != nil {
				return s, err
			}
			joint = true
			if body, plain := inner.body(); plain {
				t.write(body)
				continue
			}
			expression, err := inner.expression()
			if err != nil {
				return s, err
			}
			now.expressions = append(now.expressions, expression)
		case t.rest[0] == '\\':
			body, negated, found, err := t.class(true)
			switch {
			case err != nil:
				return s, err
			case !found:
				if err := t.escape(true); err != nil {
					return s, err
				}
				continue
			case ranged:
				return s, errors.New("a range to a class of characters")
			}
			class = true
			now.add(t, body, negated)
		case t.rest[0] == ']' || t.rest[0] == '^':
			t.write(`\`)
			t.take(1)
		default:
			_, size := utf8.DecodeRuneInString(t.rest)
			t.take(size)
		}
	}
}

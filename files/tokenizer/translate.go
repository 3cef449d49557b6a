package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// translate converts an expression in the Ruby syntax of the Oniguruma library, for which
// tokenizer.json files are written, to the syntax of regexp2. Constructs with a possibly different
// meaning are errors.
func translate(expression string) (string, error) {
	t := translator{rest: expression, groups: []group{{consumes: true}}}
	for t.rest != "" {
		if err := t.next(); err != nil {
			return "", fmt.Errorf("pattern at byte %d: %w", len(expression)-len(t.rest), err)
		}
	}
	if whole := t.groups[0]; !whole.consumes || !whole.alternative {
		return "", errors.New("the pattern can match the empty text, which is not supported")
	}
	return string(t.out), nil
}

type translator struct {
	rest   string
	out    []byte
	item   bool    // a quantifier can apply to the previous item
	start  int     // start of that item in out
	before bool    // value of group.alternative before that item
	groups []group // open groups; the first is the whole expression
}

// group is the state of an open group.
type group struct {
	start       int  // start in out
	looks       bool // a look-around, which consumes no characters
	consumes    bool // all alternatives before this one match at least one character
	alternative bool // this alternative matches at least one character so far
}

// take moves n bytes to the output.
func (t *translator) take(n int) {
	t.write(t.rest[:n])
	t.rest = t.rest[n:]
}

func (t *translator) write(text string) { t.out = append(t.out, text...) }

// add starts an item at an offset in the output. consumes reports whether it matches at least one
// character.
func (t *translator) add(start int, consumes bool) {
	inner := &t.groups[len(t.groups)-1]
	t.item, t.start, t.before = true, start, inner.alternative
	inner.alternative = inner.alternative || consumes
}

// open starts a group whose opening has n bytes.
func (t *translator) open(n int) {
	t.groups = append(t.groups, group{start: len(t.out), looks: strings.ContainsAny(t.rest[:n], "=!"), consumes: true})
	t.item = false
	t.take(n)
}

// close ends a group, which is an item of the enclosing group. The pattern's compiler reports a
// group without an opening.
func (t *translator) close() {
	if last := len(t.groups) - 1; last > 0 {
		ended := t.groups[last]
		t.groups = t.groups[:last]
		t.add(ended.start, !ended.looks && ended.consumes && ended.alternative)
	}
	t.take(1)
}

// groups are openings of groups that have the same meaning in both syntaxes.
var groups = []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}

func (t *translator) next() error {
	switch c := t.rest[0]; c {
	case '(':
		if !strings.HasPrefix(t.rest, "(?") {
			t.open(1)
			return nil
		}
		if strings.HasPrefix(t.rest, "(?i)") && t.out == nil { // for the whole expression
			t.take(len("(?i)"))
			return nil
		}
		if strings.HasPrefix(t.rest, "(?m:") { // a dot also matches line ends
			t.open(len("(?m:"))
			t.out = append(t.out[:len(t.out)-2], "s:"...)
			return nil
		}
		for _, group := range groups {
			if strings.HasPrefix(t.rest, group) {
				t.open(len(group))
				return nil
			}
		}
		return fmt.Errorf("unsupported group %.4q", t.rest)
	case '|':
		t.item = false
		inner := &t.groups[len(t.groups)-1]
		inner.consumes, inner.alternative = inner.consumes && inner.alternative, false
		t.take(1)
	case ')':
		t.close()
	case '.':
		t.add(len(t.out), true)
		t.take(1)
	case '[':
		t.add(len(t.out), true)
		return t.set()
	case '\\':
		t.add(len(t.out), len(t.rest) < 2 || strings.IndexByte(edges, t.rest[1]) < 0)
		return t.escape(false)
	case '*', '+', '?', '{':
		return t.quantifier()
	case '$':
		t.item = false
		t.rest = t.rest[1:]
		t.write(`(?=\n|\z)`) // the end of a line, always
	case '^':
		t.item = false
		t.rest = t.rest[1:]
		t.write(`(?:\A|(?<=\n)(?!\z))`) // the start of a line, always
	case ']', '}':
		return fmt.Errorf("unsupported unescaped %q", c)
	default:
		t.add(len(t.out), true)
		_, size := utf8.DecodeRuneInString(t.rest)
		t.take(size)
	}
	return nil
}

// quantifier translates *, +, ?, {n}, {n,} or {n,m}, and a following ? or +.
func (t *translator) quantifier() error {
	if !t.item {
		return fmt.Errorf("%q follows nothing that it could repeat", t.rest[0])
	}
	t.item = false
	braces, exact := t.rest[0] == '{', false
	if none := t.rest[0] == '*' || t.rest[0] == '?' || strings.HasPrefix(t.rest, "{0"); none {
		t.groups[len(t.groups)-1].alternative = t.before
	}
	if !braces {
		t.take(1)
	} else {
		end := strings.IndexByte(t.rest, '}')
		var low, high int
		inside := ""
		if end > 0 {
			inside = t.rest[1:end]
		}
		switch n, _ := fmt.Sscanf(inside+" ", "%d,%d ", &low, &high); {
		case inside == fmt.Sprintf("%d", low):
			exact = true
		case n == 2 && inside == fmt.Sprintf("%d,%d", low, high) && low <= high:
		case inside == fmt.Sprintf("%d,", low):
		default:
			return errors.New("a { that does not start a repetition count")
		}
		if max(low, high) > 1000 {
			return errors.New("more than 1000 repetitions")
		}
		t.take(end + 1)
	}
	switch {
	case strings.HasPrefix(t.rest, "?") && !exact:
		t.take(1)
	case strings.HasPrefix(t.rest, "+") && !braces:
		t.take(1)
	case strings.HasPrefix(t.rest, "+"): // not possessive: a repetition of the repetition
		t.out = append(slices.Insert(t.out, t.start, []byte("(?:")...), ')')
		t.take(1)
	}
	return nil
}

// edges are escapes that match no characters.
const edges = "AzZbB"

// edge translates an escape in edges.
func (t *translator) edge(c byte) {
	switch c {
	case 'b', 'B':
		t.write(boundary(c == 'B'))
	case 'Z':
		t.write(`(?=\n?\z)`)
	default:
		t.write(t.rest[:2])
	}
	t.rest = t.rest[2:]
}

// escape translates a backslash sequence.
func (t *translator) escape(inSet bool) error {
	if len(t.rest) < 2 {
		return errors.New("a backslash at the end")
	}
	if body, negated, found, err := t.class(inSet); found || err != nil {
		if err == nil {
			t.write(bracketed(body, negated))
		}
		return err
	}
	switch c := t.rest[1]; {
	case c == 'n' || c == 'r' || c == 't' || c == 'f' || c == 'v':
		t.take(2)
	case strings.IndexByte(edges, c) >= 0 && !inSet:
		t.item = false
		t.edge(c)
	case c == 'u' || c == 'x':
		end := 6
		if c == 'x' {
			end = 4
			if strings.HasPrefix(t.rest, `\x{`) {
				if end = strings.IndexByte(t.rest, '}') + 1; end < 5 || end > 10 {
					return errors.New("a character code without its end")
				}
			}
		}
		digits := strings.Trim(t.rest[2:min(end, len(t.rest))], "{}")
		if len(t.rest) < end || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
			return errors.New("an invalid character code")
		}
		t.rest = t.rest[end:]
		t.write(`\x{` + digits + `}`)
	case c < utf8.RuneSelf && strings.IndexByte("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", c) >= 0:
		t.take(2)
	default:
		return fmt.Errorf("unsupported escape %.2q", t.rest)
	}
	return nil
}

package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// finder finds matches in a text.
type finder interface {
	// each calls yield with every match, in order; none is empty.
	each(text []byte, yield func(start, end int) error) error
}

// literal finds a string.
type literal []byte

func (l literal) each(text []byte, yield func(start, end int) error) error {
	for from := 0; ; {
		at := bytes.Index(text[from:], l)
		if at < 0 {
			return nil
		}
		if err := yield(from+at, from+at+len(l)); err != nil {
			return err
		}
		from += at + len(l)
	}
}

// Bounds on what a pattern may cost: one search, and the searches of one text together.
const (
	maxPattern     = 1 << 14 // bytes
	maxStack       = 1 << 22 // slots of the backtracking stack
	searchTime     = 5 * time.Second
	textTime       = 10 * time.Second // and for every MiB a second more
	maxPatternText = 512 << 20        // bytes
)

// errPatternCost says that a pattern took longer than patterns of tokenizers do.
var errPatternCost = errors.New("pattern takes too long")

// pattern finds what a regular expression matches.
type pattern struct {
	path string // of the pattern in the file
	expr *regexp2.Regexp
}

func (p *pattern) each(text []byte, yield func(start, end int) error) error {
	if len(text) > maxPatternText {
		return fmt.Errorf("%s: a text of %d bytes, at most %d are searched", p.path, len(text), maxPatternText)
	}
	runes := make([]rune, 0, utf8.RuneCount(text))
	for _, r := range string(text) {
		runes = append(runes, r)
	}
	deadline := time.Now().Add(textTime + time.Duration(len(text)>>20)*time.Second)
	var inner error
	at, offset := 0, 0 // the same place, in characters and in bytes
	count := 0
	err := p.expr.FindRunesMatches(runes, 0, func(match regexp2.MatchView) bool {
		first, length, _ := match.GroupRange(0)
		if count++; length == 0 {
			inner = fmt.Errorf("%w: %s matches without any character", ErrUnsupported, p.path)
			return false
		}
		if count%1024 == 0 && time.Now().After(deadline) {
			inner = fmt.Errorf("%s: %w", p.path, errPatternCost)
			return false
		}
		for ; at < first; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		start := offset
		for ; at < first+length; at++ {
			offset += utf8.RuneLen(runes[at])
		}
		inner = yield(start, offset)
		return inner == nil
	})
	if inner != nil {
		return inner
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", p.path, errPatternCost, err)
	}
	return nil
}

// parsePattern reads a pattern: {"String": ...} or {"Regex": ...}.
func parsePattern(o *object, key string) (finder, error) {
	inner := o.object(key)
	_, isString := inner.fields["String"]
	if isString {
		text := inner.text("String")
		if err := errors.Join(o.err, inner.done()); err != nil {
			return nil, err
		}
		if text == "" || len(text) > maxTokenBytes {
			return nil, fmt.Errorf("%w: %s has %d bytes, want 1 to %d", ErrUnsupported, inner.path("String"), len(text), maxTokenBytes)
		}
		return literal(text), nil
	}
	expression := inner.text("Regex")
	if o.err != nil {
		return nil, o.err
	}
	if err := inner.done(); err != nil {
		return nil, err
	}
	return newPattern(inner.path("Regex"), expression)
}

// newPattern returns a scanner for the patterns of well-known tokenizers, and a regular
// expression for any other.
func newPattern(path, expression string) (finder, error) {
	if scan, known := scanners[lineEscapes.Replace(expression)]; known {
		return scan, nil
	}
	return compilePattern(path, expression)
}

// lineEscapes writes line ends in an expression as the patterns of scanners have them.
var lineEscapes = strings.NewReplacer("\r", `\r`, "\n", `\n`)

func compilePattern(path, expression string) (*pattern, error) {
	if len(expression) > maxPattern {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrUnsupported, path, len(expression), maxPattern)
	}
	translated, err := translate(expression)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	compiled, err := regexp2.Compile(translated, regexp2.OptionMaxBacktrackingStackSize(maxStack))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnsupported, path, err)
	}
	compiled.MatchTimeout = searchTime
	return &pattern{path: path, expr: compiled}, nil
}

// translate turns an expression of the Oniguruma library in its Ruby syntax, which
// tokenizer.json files are written for, into the syntax of regexp2. Constructs whose
// meaning differs, or may, are errors.
func translate(expression string) (string, error) {
	t := translator{rest: expression}
	for t.rest != "" {
		if err := t.next(); err != nil {
			return "", fmt.Errorf("pattern at byte %d: %w", len(expression)-len(t.rest), err)
		}
	}
	return t.out.String(), nil
}

type translator struct {
	rest string
	out  strings.Builder
	item bool // something came before that a quantifier can apply to
}

// take moves n bytes to the output.
func (t *translator) take(n int) {
	t.out.WriteString(t.rest[:n])
	t.rest = t.rest[n:]
}

// groups are the beginnings of groups that mean the same in both syntaxes.
var groups = []string{"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}

func (t *translator) next() error {
	switch c := t.rest[0]; c {
	case '(':
		t.item = false
		if !strings.HasPrefix(t.rest, "(?") {
			t.take(1)
			return nil
		}
		for _, group := range groups {
			if strings.HasPrefix(t.rest, group) {
				t.take(len(group))
				return nil
			}
		}
		return fmt.Errorf("the group %.4q is not known here", t.rest)
	case '|':
		t.item = false
		t.take(1)
	case ')', '.':
		t.item = true
		t.take(1)
	case '[':
		t.item = true
		return t.set()
	case '\\':
		t.item = true
		return t.escape(false)
	case '*', '+', '?', '{':
		return t.quantifier()
	case '$':
		t.item = false
		t.rest = t.rest[1:]
		t.out.WriteString(`(?=\n|\z)`) // the end of a line, always
	case '^', ']', '}':
		return fmt.Errorf("a bare %q is not known here", c)
	default:
		t.item = true
		_, size := utf8.DecodeRuneInString(t.rest)
		t.take(size)
	}
	return nil
}

// quantifier reads *, +, ?, {n}, {n,} or {n,m}, and a ? or + after it.
func (t *translator) quantifier() error {
	if !t.item {
		return fmt.Errorf("%q has nothing to repeat", t.rest[0])
	}
	t.item = false
	braces, exact := t.rest[0] == '{', false
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
			return errors.New("a { that is no count of repetitions")
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
	}
	return nil
}

// set reads a bracketed set of characters.
func (t *translator) set() error {
	t.take(1)
	if strings.HasPrefix(t.rest, "^") {
		t.take(1)
	}
	for first := true; ; first = false {
		switch {
		case t.rest == "":
			return errors.New("a set without end")
		case t.rest[0] == ']' && !first:
			t.take(1)
			return nil
		case t.rest[0] == ']' || t.rest[0] == '[' || strings.HasPrefix(t.rest, "&&"):
			return fmt.Errorf("a set within a set (%.2q)", t.rest)
		case t.rest[0] == '\\':
			if err := t.escape(true); err != nil {
				return err
			}
		default:
			_, size := utf8.DecodeRuneInString(t.rest)
			t.take(size)
		}
	}
}

// escape reads what begins with a backslash.
func (t *translator) escape(inSet bool) error {
	if len(t.rest) < 2 {
		return errors.New("a backslash at the end")
	}
	switch c := t.rest[1]; {
	case c == 'p' || c == 'P':
		return t.property(inSet)
	case c == 'd' && !inSet:
		t.rest = t.rest[2:]
		t.writeProperty("Nd", false, false)
	case c == 's' || c == 'n' || c == 'r' || c == 't' || c == 'f' || c == 'v':
		t.take(2)
	case c == 'S' && !inSet:
		t.take(2)
	case (c == 'A' || c == 'z') && !inSet:
		t.item = false
		t.take(2)
	case c == 'u' || c == 'x':
		end := 6
		if c == 'x' {
			end = 4
			if strings.HasPrefix(t.rest, `\x{`) {
				if end = strings.IndexByte(t.rest, '}') + 1; end < 5 || end > 10 {
					return errors.New("a character code without end")
				}
			}
		}
		digits := strings.Trim(t.rest[2:min(end, len(t.rest))], "{}")
		if len(t.rest) < end || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
			return errors.New("a character code that is none")
		}
		t.rest = t.rest[end:]
		fmt.Fprintf(&t.out, `\x{%s}`, digits)
	case c < utf8.RuneSelf && strings.IndexByte("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", c) >= 0:
		t.take(2)
	default:
		return fmt.Errorf("the escape %.2q is not known here", t.rest)
	}
	return nil
}

// property reads \p{...} or \P{...}.
func (t *translator) property(inSet bool) error {
	end := strings.IndexByte(t.rest, '}')
	if len(t.rest) < 3 || t.rest[2] != '{' || end < 0 {
		return errors.New("a property without braces")
	}
	name, negated := t.rest[3:end], t.rest[1] == 'P'
	if !knownProperty(name) {
		return fmt.Errorf("the property %.20q is not known here", name)
	}
	if inSet && negated {
		return fmt.Errorf(`\P{%s} in a set`, name)
	}
	t.rest = t.rest[end+1:]
	t.writeProperty(name, negated, inSet)
	return nil
}

// writeProperty writes the characters of a property as of Unicode 16.0.
func (t *translator) writeProperty(name string, negated, inSet bool) {
	switch {
	case negated:
		t.out.WriteString("[^")
	case !inSet:
		t.out.WriteString("[")
	}
	if name == "Mn" {
		for _, r := range ranges("Mn") {
			fmt.Fprintf(&t.out, `\x{%x}-\x{%x}`, r[0], r[1])
		}
	} else {
		fmt.Fprintf(&t.out, `\p{%s}`, name)
	}
	for _, r := range added16(name) {
		fmt.Fprintf(&t.out, `\x{%x}-\x{%x}`, r[0], r[1])
	}
	if !inSet {
		t.out.WriteString("]")
	}
}

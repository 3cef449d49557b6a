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
	// each calls yield for every match, in order. Matches are not empty.
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

// Limits of a pattern's cost: for one search, and for all searches in one text.
const (
	maxPattern     = 1 << 14 // bytes
	maxStack       = 1 << 22 // slots of the backtracking stack
	searchTime     = 5 * time.Second
	textTime       = 10 * time.Second // plus a second for every MiB
	maxPatternText = 512 << 20        // bytes
)

// errPatternCost means that a pattern took longer than patterns of real tokenizers do.
var errPatternCost = errors.New("matching the pattern takes too long")

// pattern finds the matches of a regular expression.
type pattern struct {
	path string // path of the pattern in the file
	expr *regexp2.Regexp
}

func (p *pattern) each(text []byte, yield func(start, end int) error) error {
	if len(text) > maxPatternText {
		return fmt.Errorf("%s: the text has %d bytes, the limit for pattern matching is %d", p.path, len(text), maxPatternText)
	}
	runes := make([]rune, 0, utf8.RuneCount(text))
	for _, r := range string(text) {
		runes = append(runes, r)
	}
	deadline := time.Now().Add(textTime + time.Duration(len(text)>>20)*time.Second)
	var inner error
	at, offset := 0, 0 // the same position, in characters and in bytes
	count := 0
	err := p.expr.FindRunesMatches(runes, 0, func(match regexp2.MatchView) bool {
		first, length, _ := match.GroupRange(0)
		if count++; length == 0 {
			inner = fmt.Errorf("%w: %s matches the empty text", errUnsupported, p.path)
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

// parsePattern parses a pattern: {"String": ...} or {"Regex": ...}.
func parsePattern(o *object, key string) (finder, error) {
	inner := o.object(key)
	_, isString := inner.fields["String"]
	if isString {
		text := inner.text("String")
		if err := errors.Join(o.err, inner.done()); err != nil {
			return nil, err
		}
		if text == "" || len(text) > maxTokenBytes {
			return nil, fmt.Errorf("%w: %s has %d bytes, want 1 to %d", errUnsupported, inner.path("String"), len(text), maxTokenBytes)
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

// lineEscapes escapes line ends in an expression as in the scanners' patterns.
var lineEscapes = strings.NewReplacer("\r", `\r`, "\n", `\n`)

func compilePattern(path, expression string) (*pattern, error) {
	if len(expression) > maxPattern {
		return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", errUnsupported, path, len(expression), maxPattern)
	}
	translated, err := translate(expression)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnsupported, path, err)
	}
	compiled, err := regexp2.Compile(translated, regexp2.OptionMaxBacktrackingStackSize(maxStack))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnsupported, path, err)
	}
	compiled.MatchTimeout = searchTime
	return &pattern{path: path, expr: compiled}, nil
}

package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors of templates.
var (
	errUnsupported = errors.New("unsupported feature of chat templates")
	errSyntax      = errors.New("invalid chat template")
	errTooMuch     = errors.New("the chat template exceeds a limit")
	ErrTemplate    = errors.New("cannot apply the chat template")
)

// maxSource limits a template, in bytes. The longest templates in use have about 20 KiB.
const maxSource = 256 << 10

type kind int

const (
	textToken kind = iota
	beginValue
	endValue
	beginBlock
	endBlock
	nameToken
	stringToken
	integerToken
	floatToken
	operatorToken
	endOfTemplate
)

type token struct {
	kind kind
	text string
	line int
}

func (t token) String() string {
	if t.kind == endOfTemplate {
		return "the end of the template"
	}
	return strconv.Quote(t.text)
}

// isSpace implements Python's str.isspace, and \s of its regular expressions.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ', r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

// lexer splits a template into tokens.
type lexer struct {
	rest      string
	line      int
	lineStart bool // the previous token ended with a line break
	tokens    []token
}

func lex(source string) ([]token, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", errTooMuch, len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		return nil, fmt.Errorf("%w: not UTF-8", errSyntax)
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{rest: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.rest != "" {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.add(endOfTemplate, "")
	return l.tokens, nil
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

func (l *lexer) skip(n int) string {
	taken := l.rest[:n]
	l.rest = l.rest[n:]
	l.line += strings.Count(taken, "\n")
	if n > 0 {
		l.lineStart = taken[n-1] == '\n'
	}
	return taken
}

// next reads the text up to the next tag, and the tag.
func (l *lexer) next() error {
	at := nextTag(l.rest)
	if at < 0 {
		l.add(textToken, l.skip(len(l.rest)))
		return nil
	}
	text, opener := l.rest[:at], l.rest[at:at+2]
	sign := byte(0)
	if len(l.rest) > at+2 {
		sign = l.rest[at+2]
	}
	text = l.withoutIndent(text, sign, opener != "{{")
	if text != "" {
		l.add(textToken, text)
	}
	l.skip(at + 2)
	if sign == '-' || sign == '+' {
		l.skip(1)
	}
	switch opener {
	case "{#":
		return l.comment()
	case "{{":
		return l.inside(beginValue, endValue, "}}")
	}
	if begin := rawBegin.FindString(l.rest); begin != "" {
		return l.raw(begin)
	}
	return l.inside(beginBlock, endBlock, "%}")
}

// withoutIndent returns the text before a tag. It removes the spaces that the tag's sign removes,
// or that indent a tag in its own line.
func (l *lexer) withoutIndent(text string, sign byte, ownLine bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	from := strings.LastIndexByte(text, '\n') + 1
	if sign != '+' && ownLine && (from > 0 || l.lineStart) && strings.TrimFunc(text[from:], isSpace) == "" {
		return text[:from]
	}
	return text
}

var (
	rawBegin = regexp.MustCompile(`^\s*raw\s*(?:-%}|%})`)
	rawEnd   = regexp.MustCompile(`{%([-+]?)\s*endraw\s*(?:\+%}|-%}|%}\n?)`)
)

// raw reads a block whose text is not a template. begin is the rest of its first tag.
func (l *lexer) raw(begin string) error {
	l.skip(len(begin))
	l.skipSpaces(strings.HasSuffix(begin, "-%}"))
	end := rawEnd.FindStringSubmatchIndex(l.rest)
	if end == nil && l.rest == "" {
		return nil // as in jinja2
	}
	if end == nil {
		return fmt.Errorf("%w: line %d: a raw block has no end", errSyntax, l.line)
	}
	sign := byte(0)
	if end[2] < end[3] {
		sign = l.rest[end[2]]
	}
	if text := l.withoutIndent(l.rest[:end[0]], sign, true); text != "" {
		l.add(textToken, text)
	}
	tag := l.skip(end[1])
	l.skipSpaces(strings.HasSuffix(tag, "-%}"))
	return nil
}

func (l *lexer) skipSpaces(skip bool) {
	if skip {
		l.skip(len(l.rest) - len(strings.TrimLeftFunc(l.rest, isSpace)))
	}
}

func nextTag(text string) int {
	from := 0
	for {
		at := strings.IndexByte(text[from:], '{')
		if at < 0 || from+at+1 >= len(text) {
			return -1
		}
		if at += from; strings.IndexByte("{%#", text[at+1]) >= 0 {
			return at
		}
		from = at + 1
	}
}

func (l *lexer) comment() error {
	end := strings.Index(l.rest, "#}")
	if l.rest == "" {
		return nil // as in jinja2
	}
	if end < 0 {
		return fmt.Errorf("%w: line %d: a comment has no end", errSyntax, l.line)
	}
	if end > 0 && (l.rest[end-1] == '-' || l.rest[end-1] == '+') {
		end--
	}
	l.skip(end)
	l.close("#}", true)
	return nil
}

// close reads the end of a tag if one is here. It also removes whitespace as a sign selects or, for
// blocks and comments, the following line break.
func (l *lexer) close(end string, ownLine bool) bool {
	switch {
	case strings.HasPrefix(l.rest, "-"+end):
		rest := strings.TrimLeftFunc(l.rest[3:], isSpace)
		l.skip(len(l.rest) - len(rest))
	case ownLine && strings.HasPrefix(l.rest, "+"+end):
		l.skip(3)
	case strings.HasPrefix(l.rest, end):
		n := 2
		if ownLine && strings.HasPrefix(l.rest[2:], "\n") {
			n = 3
		}
		l.skip(n)
	default:
		return false
	}
	return true
}

// inside reads the tokens of a tag.
func (l *lexer) inside(begin, end kind, closer string) error {
	l.add(begin, "")
	var open []byte
	for {
		rest := strings.TrimLeftFunc(l.rest, isSpace)
		l.skip(len(l.rest) - len(rest))
		if l.rest == "" {
			return fmt.Errorf("%w: line %d: a tag has no end", errSyntax, l.line)
		}
		if len(open) == 0 {
			line := l.line
			if l.close(closer, end == endBlock) {
				l.tokens = append(l.tokens, token{end, closer, line})
				return nil
			}
		}
		switch c := l.rest[0]; {
		case c == '\'' || c == '"':
			if err := l.quoted(c); err != nil {
				return err
			}
		case nameLength(l.rest) > 0:
			l.add(nameToken, l.skip(nameLength(l.rest)))
		case isDigit(c):
			l.number()
		default:
			if err := l.operator(&open); err != nil {
				return err
			}
		}
	}
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// nameLength returns the length of the name at the start of a text.
func nameLength(text string) int {
	n := 0
	for n < len(text) {
		c, size := utf8.DecodeRuneInString(text[n:])
		if c != '_' && !unicode.IsLetter(c) && (n == 0 || !unicode.IsDigit(c)) {
			break
		}
		n += size
	}
	return n
}

var (
	floatPattern   = regexp.MustCompile(`^(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][-+]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)`)
	integerPattern = regexp.MustCompile(`^(?:0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*)`)
)

func (l *lexer) number() {
	last := l.tokens[len(l.tokens)-1]
	if field := last.kind == operatorToken && last.text == "."; !field {
		if n := len(floatPattern.FindString(l.rest)); n > 0 {
			l.add(floatToken, l.skip(n))
			return
		}
	}
	l.add(integerToken, l.skip(len(integerPattern.FindString(l.rest))))
}

var operators = []string{"==", "!=", ">=", "<=", "//", "**", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ","}

func (l *lexer) operator(open *[]byte) error {
	for _, op := range operators {
		if !strings.HasPrefix(l.rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			*open = append(*open, map[string]byte{"(": ')', "[": ']', "{": '}'}[op])
		case ")", "]", "}":
			if len(*open) == 0 || (*open)[len(*open)-1] != op[0] {
				return fmt.Errorf("%w: line %d: unmatched %q", errSyntax, l.line, op)
			}
			*open = (*open)[:len(*open)-1]
		}
		l.add(operatorToken, op)
		l.skip(len(op))
		return nil
	}
	r, _ := utf8.DecodeRuneInString(l.rest)
	return fmt.Errorf("%w: line %d: the character %q in a tag", errUnsupported, l.line, r)
}

// quoted reads a string with Python's escapes.
func (l *lexer) quoted(quote byte) error {
	var out strings.Builder
	for i := 1; i < len(l.rest); i++ {
		switch c := l.rest[i]; c {
		case quote:
			line := l.line
			l.skip(i + 1)
			l.tokens = append(l.tokens, token{stringToken, out.String(), line})
			return nil
		case '\\':
			n, err := escape(&out, l.rest[i+1:])
			if err != nil {
				return fmt.Errorf("%w: line %d", err, l.line)
			}
			i += n
		default:
			out.WriteByte(c)
		}
	}
	return fmt.Errorf("%w: line %d: a string has no end", errSyntax, l.line)
}

var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

// escape writes the character of an escape after its backslash, and returns the length of the
// escape in bytes.
func escape(out *strings.Builder, rest string) (int, error) {
	if rest == "" {
		return 0, fmt.Errorf("%w: a string has no end", errSyntax)
	}
	if text, simple := escapes[rest[0]]; simple {
		out.WriteString(text)
		return 1, nil
	}
	switch c := rest[0]; {
	case c == 'x' || c == 'u' || c == 'U':
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if len(rest) <= n {
			return 0, fmt.Errorf("%w: an escape is cut off", errSyntax)
		}
		value, err := strconv.ParseUint(rest[1:1+n], 16, 32)
		if err == nil && value >= 0xd800 && value <= 0xdfff {
			return 0, fmt.Errorf("%w: the escape \\%s of a surrogate", errUnsupported, rest[:1+n])
		}
		if err != nil || !utf8.ValidRune(rune(value)) {
			return 0, fmt.Errorf("%w: invalid escape \\%s", errSyntax, rest[:1+n])
		}
		out.WriteRune(rune(value))
		return 1 + n, nil
	case c >= '0' && c <= '7':
		n := 1
		for n < min(3, len(rest)) && rest[n] >= '0' && rest[n] <= '7' {
			n++
		}
		value, _ := strconv.ParseUint(rest[:n], 8, 16) // at most 511
		out.WriteRune(rune(value))
		return n, nil
	case c == 'N':
		return 0, fmt.Errorf("%w: the escape \\%c", errUnsupported, c)
	default:
		out.WriteByte('\\')
		return 0, nil
	}
}

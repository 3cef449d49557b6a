package tokenizer

import "unicode/utf8"

// Patterns of well-known tokenizers.
const (
	gpt2Pattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llamaPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenPattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	deepseekPattern    = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	deepseekCJKPattern = `[一-龥぀-ゟ゠-ヿ]+`
	numbersPattern     = `\p{N}{1,3}`
)

// scanners find the matches of these patterns several times faster than a regular expression does.
// A property test compares them with the expressions.
var scanners = map[string]finder{
	gpt2Pattern:        scanner(scanGPT2),
	llamaPattern:       scanner(func(t *classTable, text []byte, at int) int { return scanLlama(t, text, at, 3) }),
	qwenPattern:        scanner(func(t *classTable, text []byte, at int) int { return scanLlama(t, text, at, 1) }),
	deepseekPattern:    scanner(scanDeepSeek),
	deepseekCJKPattern: scanner(scanDeepSeekCJK),
	numbersPattern:     scanner(scanNumbers),
}

// scanner returns the end of the match at an offset, or the offset itself if there is none.
type scanner func(t *classTable, text []byte, at int) (end int)

func (s scanner) each(text []byte, yield func(start, end int) error) error {
	table := classes()
	for at := 0; at < len(text); {
		end := s(table, text, at)
		if end == at {
			_, size := table.at(text, at)
			at += size
			continue
		}
		if err := yield(at, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// at returns the classes of the character at an offset and its length; 0, 0 at the end.
func (t *classTable) at(text []byte, at int) (class, int) {
	if at >= len(text) {
		return 0, 0
	}
	if c := text[at]; c < utf8.RuneSelf {
		return t.rows[t.pages[0]][c], 1
	}
	r, size := utf8.DecodeRune(text[at:])
	return t.of(r), size
}

// run returns the end of the run of characters from an offset on that have one of some classes.
func (t *classTable) run(text []byte, at int, of class) int {
	ascii := &t.rows[t.pages[0]]
	for at < len(text) {
		c := text[at]
		if c < utf8.RuneSelf {
			if ascii[c]&of == 0 {
				return at
			}
			at++
			continue
		}
		r, size := utf8.DecodeRune(text[at:])
		if t.of(r)&of == 0 {
			return at
		}
		at += size
	}
	return at
}

// runWithout returns the end of the run of characters from an offset on that have none of some
// classes.
func (t *classTable) runWithout(text []byte, at int, of class) int {
	for at < len(text) {
		c, size := t.at(text, at)
		if c&of != 0 {
			return at
		}
		at += size
	}
	return at
}

func newlines(text []byte, at int) int {
	for at < len(text) && (text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// blanks matches \s+(?!\S)|\s+ at the start of white space: all of it at the end of the text, else
// all but the last character, which belongs to the following word.
func blanks(t *classTable, text []byte, at int) int {
	end := t.run(text, at, space)
	if end == len(text) {
		return end
	}
	_, size := utf8.DecodeLastRune(text[at:end])
	if end-size > at {
		return end - size
	}
	return end
}

// lines matches \s*[\r\n]+|\s+(?!\S)|\s+ at the start of white space.
func lines(t *classTable, text []byte, at int) int {
	end := t.run(text, at, space)
	for last := end; last > at; last-- {
		if c := text[last-1]; c == '\r' || c == '\n' {
			return last
		}
	}
	return blanks(t, text, at)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at an offset, or 0. With fold,
// case does not matter, and a long s counts as an s.
func contraction(text []byte, at int, fold bool) int {
	if at+1 >= len(text) || text[at] != '\'' {
		return 0
	}
	lower := func(c byte) byte {
		if fold && c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}
	switch c := lower(text[at+1]); c {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if at+2 < len(text) {
			next := lower(text[at+2])
			if c == 'l' && next == 'l' || c != 'l' && next == 'e' {
				return 3
			}
		}
	case "ſ"[0]:
		if fold && at+2 < len(text) && text[at+2] == "ſ"[1] {
			return 3
		}
	}
	return 0
}

func scanGPT2(t *classTable, text []byte, at int) int {
	if n := contraction(text, at, false); n > 0 {
		return at + n
	}
	from := at
	if text[at] == ' ' {
		from++
	}
	switch c, size := t.at(text, from); {
	case c&letter != 0:
		return t.run(text, from, letter)
	case c&number != 0:
		return t.run(text, from, number)
	case size > 0 && c&space == 0:
		return t.runWithout(text, from, space|letter|number)
	}
	return blanks(t, text, at)
}

func scanLlama(t *classTable, text []byte, at, digits int) int {
	if n := contraction(text, at, true); n > 0 {
		return at + n
	}
	c, size := t.at(text, at)
	if c&letter != 0 {
		return t.run(text, at, letter)
	}
	if c&number != 0 {
		return numbers(t, text, at, digits)
	}
	if text[at] != '\r' && text[at] != '\n' {
		if next, _ := t.at(text, at+size); next&letter != 0 {
			return t.run(text, at+size, letter)
		}
	}
	from := at
	if text[at] == ' ' {
		from++
	}
	if c, size := t.at(text, from); size > 0 && c&(space|letter|number) == 0 {
		return newlines(text, t.runWithout(text, from, space|letter|number))
	}
	return lines(t, text, at)
}

// numbers returns the end of a run of numeric characters. limit is the maximum number of characters.
func numbers(t *classTable, text []byte, at, limit int) int {
	for ; limit > 0; limit-- {
		c, size := t.at(text, at)
		if c&number == 0 {
			break
		}
		at += size
	}
	return at
}

func scanNumbers(t *classTable, text []byte, at int) int {
	return numbers(t, text, at, 3)
}

func scanDeepSeekCJK(_ *classTable, text []byte, at int) int {
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if (r < '一' || r > '龥') && (r < 0x3040 || r > 'ヿ') {
			break
		}
		at += size
	}
	return at
}

func isASCIILetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func scanDeepSeek(t *classTable, text []byte, at int) int {
	c, size := t.at(text, at)
	if size == 1 && c&(punctuation|symbol) != 0 && at+1 < len(text) && isASCIILetter(text[at+1]) {
		end := at + 1
		for end < len(text) && isASCIILetter(text[end]) {
			end++
		}
		return end
	}
	if c&(letter|punctuation|symbol) == 0 && text[at] != '\r' && text[at] != '\n' {
		if next, _ := t.at(text, at+size); next&(letter|mark) != 0 {
			return t.run(text, at+size, letter|mark)
		}
	}
	if c&(letter|mark) != 0 {
		return t.run(text, at, letter|mark)
	}
	from := at
	if text[at] == ' ' {
		from++
	}
	if c, _ := t.at(text, from); c&(punctuation|symbol) != 0 {
		return newlines(text, t.run(text, from, punctuation|symbol))
	}
	if c&space == 0 {
		return at
	}
	return lines(t, text, at)
}

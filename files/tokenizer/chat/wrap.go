package chat

import (
	"slices"
	"strings"
	"unicode"
)

// wordwrapFilter implements the filter wordwrap, which breaks each line like Python's textwrap.
func wordwrapFilter(r *renderer, of any, g given) any {
	args := g.bind("width", "break_long_words", "wrapstring", "break_on_hyphens")
	if _, isFloat := args[0].(float64); isFloat {
		r.unsupported("wordwrap with a width that is not an integer")
	}
	between := or(args[2], nil)
	if _, isSafe := between.(markup); isSafe {
		r.unsupported("wordwrap with a safe string between the lines")
	}
	if between == nil {
		between = "\n"
	}
	hyphens := or(args[3], true)
	w := wrapper{r: r, width: g.whole(or(args[0], int64(79))), long: truth(or(args[1], true)), hyphens: truth(hyphens)}
	text := g.text(of)
	r.spend(32 * len(text))
	var all []any
	for _, line := range lines(text, false) {
		if w.width <= 0 {
			r.wrong("wordwrap to %d characters", w.width)
		}
		all = append(all, r.joined(w.wrap(w.chunks([]rune(line.(string)), hyphens == true)), g.text(between)))
	}
	return r.joined(all, g.text(between))
}

// wrapper breaks a line.
type wrapper struct {
	r             *renderer
	width         int64
	long, hyphens bool // break long words, and break after hyphens
}

func wrapSpace(c rune) bool { return c == ' ' || c >= '\t' && c <= '\r' }
func wordRune(c rune) bool  { return c == '_' || unicode.IsLetter(c) || isNumericRune(c) }
func wordLetter(c rune) bool {
	return wordRune(c) && !unicode.IsDigit(c)
}
func wordMark(c rune) bool { return wordRune(c) || strings.ContainsRune("!\"'&.,?", c) }

// chunks splits a line into spaces and words. If hyphens is set, words end after hyphens.
func (w wrapper) chunks(all []rune, hyphens bool) (chunks [][]rune) {
	for at := 0; at < len(all); {
		end := at + 1
		switch {
		case wrapSpace(all[at]):
			for end < len(all) && wrapSpace(all[end]) {
				end++
			}
		case !hyphens:
			for end < len(all) && !wrapSpace(all[end]) {
				end++
			}
		case at > 0 && wordMark(all[at-1]) && dash(all, at) > 0:
			end = at + dash(all, at)
		default:
			end = wordEnd(all, at)
		}
		w.r.step(end - at)
		chunks = append(chunks, all[at:end])
		at = end
	}
	return chunks
}

// dash returns the number of hyphens at a place, if there are several before a word.
func dash(all []rune, at int) int {
	end := at
	for end < len(all) && all[end] == '-' {
		end++
	}
	if end-at < 2 || end == len(all) || !wordRune(all[end]) {
		return 0
	}
	return end - at
}

// wordEnd returns the end of the word, or of the part of a hyphenated word, that begins at a place.
func wordEnd(all []rune, at int) int {
	letter := func(i int) bool { return i >= 0 && i < len(all) && wordLetter(all[i]) }
	for end := at + 1; end < len(all); end++ {
		behind := letter(end-1) && (letter(end-2) || end > 1 && all[end-2] == '-' && letter(end-3))
		before := letter(end+1) && (letter(end+2) || end+2 < len(all) && all[end+2] == '-' && letter(end+3))
		switch {
		case all[end] == '-' && behind && before:
			return end + 1
		case wrapSpace(all[end]), wordMark(all[end-1]) && dash(all, end) > 0:
			return end
		}
	}
	return len(all)
}

// blank reports whether a chunk has only spaces. It reads a word only up to its first character.
func blank(chunk []rune) bool {
	return !slices.ContainsFunc(chunk, func(c rune) bool { return !isSpace(c) })
}

// wrap returns the lines of chunks.
func (w wrapper) wrap(chunks [][]rune) (all []any) {
	for len(chunks) > 0 {
		w.r.step(1)
		w.r.spend(32)
		if len(all) > 0 && blank(chunks[0]) {
			chunks = chunks[1:]
		}
		var line [][]rune
		size := int64(0)
		for len(chunks) > 0 && size+int64(len(chunks[0])) <= w.width {
			size += int64(len(chunks[0]))
			line, chunks = append(line, chunks[0]), chunks[1:]
		}
		if len(chunks) > 0 && int64(len(chunks[0])) > w.width {
			if w.long {
				end := w.longEnd(chunks[0], w.width-size)
				line = append(line, chunks[0][:end])
				chunks[0] = chunks[0][end:]
			} else if len(line) == 0 {
				line, chunks = append(line, chunks[0]), chunks[1:]
			}
		}
		if len(line) > 0 && blank(line[len(line)-1]) {
			line = line[:len(line)-1]
		}
		if len(line) > 0 {
			all = append(all, string(slices.Concat(line...)))
		}
	}
	return all
}

// longEnd returns the position at which a word that is longer than a line is broken, within the
// remaining space.
func (w wrapper) longEnd(chunk []rune, left int64) int {
	end := int(left)
	if !w.hyphens || len(chunk) <= end {
		return end
	}
	for hyphen := end - 1; hyphen > 0; hyphen-- {
		if chunk[hyphen] == '-' {
			if strings.Trim(string(chunk[:hyphen]), "-") != "" {
				return hyphen + 1
			}
			break
		}
	}
	return end
}

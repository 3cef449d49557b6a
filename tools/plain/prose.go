package main

import (
	"regexp"
	"sort"
	"strings"
)

// Kinds of prose. Each kind has a separate limit.
const (
	kindMarkdown = "markdown"
	kindComment  = "comment"
	kindMessage  = "message"
	kindHelp     = "help"
	kindPage     = "page"
	kindCommit   = "commit"
)

// line is one line of a paragraph.
type line struct {
	number int // from 1
	text   string
}

// prose is one paragraph of a file.
type prose struct {
	path, kind string
	lines      []line
	starts     []int  // byte offset in text of the start of each line
	original   string // the lines, joined by blanks
	text       string // original, with code and addresses replaced; same length
}

// sentence is a part of prose.text that begins at byte start.
type sentence struct {
	start int
	text  string
}

func newProse(path, kind string, lines []line) *prose {
	p := &prose{path: path, kind: kind, lines: lines}
	parts, at := make([]string, len(lines)), 0
	for i, l := range lines {
		p.starts = append(p.starts, at)
		parts[i] = l.text
		at += len(l.text) + 1
	}
	p.original = strings.Join(parts, " ")
	p.text = clean(p.original, kind == kindMarkdown)
	return p
}

// line returns the number of the line that contains the byte offset.
func (p *prose) line(offset int) int {
	i := sort.SearchInts(p.starts, offset+1) - 1
	return p.lines[i].number
}

var sentenceEnd = regexp.MustCompile("[.!?:](\\s+)[A-Z\\[*`(]")

// sentences returns the sentences of p. A sentence ends at a full stop, colon, exclamation or question mark before a
// capital letter. The subject of a commit is one sentence.
func (p *prose) sentences() []sentence {
	if p.kind == kindCommit {
		return []sentence{{0, p.text}}
	}
	var all []sentence
	at := 0
	for from := 0; ; {
		m := sentenceEnd.FindStringSubmatchIndex(p.text[from:])
		if m == nil {
			return append(all, sentence{at, p.text[at:]})
		}
		all = append(all, sentence{at, p.text[at : from+m[2]]})
		at = from + m[3]
		from = at
	}
}

var (
	notProse = regexp.MustCompile("`[^`]*`|https?://\\S+|\\{\\{.*?\\}\\}|“[^”]*”|\\\\.|%[-+#0 .\\d]*[a-zA-Z]")
	target   = regexp.MustCompile(`\]\([^)]*\)`)
	markup   = regexp.MustCompile(`[*_\[\]|]|<[^>]*>`)
)

// clean replaces code, quotations and addresses by letters, and the marks of Markdown by blanks. Every byte keeps its
// offset.
func clean(text string, markdown bool) string {
	text = notProse.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("x", len(s)) })
	if !markdown {
		return text
	}
	blank := func(s string) string { return strings.Repeat(" ", len(s)) }
	return markup.ReplaceAllStringFunc(target.ReplaceAllStringFunc(text, blank), blank)
}

// paragraphs groups consecutive lines that are not blank.
func paragraphs(path, kind string, lines []line) []*prose {
	var all []*prose
	var group []line
	flush := func() {
		if len(group) > 0 {
			all = append(all, newProse(path, kind, group))
		}
		group = nil
	}
	for _, l := range lines {
		if l.text = strings.TrimSpace(l.text); l.text == "" {
			flush()
			continue
		}
		group = append(group, l)
	}
	flush()
	return all
}

var (
	indented  = regexp.MustCompile(`^    [^-*\d\s]`)
	tableRule = regexp.MustCompile(`^(?:[|:\s-]+$|!\[|<!--)`)
	newItem   = regexp.MustCompile(`^(?:#|\||[-*+] |\d+\. )`)
	lead      = regexp.MustCompile(`^[#>\-*+\s]+|^\d+\.\s`)
)

// markdown returns the prose of a page without its code blocks. Each row of a table is a paragraph.
func markdown(path, text string) []*prose {
	var group []line
	fence := false
	for i, text := range strings.Split(text, "\n") {
		stripped := strings.TrimSpace(text)
		afterText := len(group) > 0 && group[len(group)-1].text != ""
		switch {
		case strings.HasPrefix(stripped, "```"), strings.HasPrefix(stripped, "~~~"):
			fence, stripped = !fence, ""
		case fence, indented.MatchString(text) && !afterText, tableRule.MatchString(stripped):
			stripped = ""
		}
		if newItem.MatchString(stripped) {
			group = append(group, line{i + 1, ""})
		}
		group = append(group, line{i + 1, lead.ReplaceAllString(strings.Trim(stripped, "|"), "")})
	}
	return paragraphs(path, kindMarkdown, group)
}

package tokenizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Character classes in patterns, as the bodies of sets for regexp2. They were compared with the
// reference implementation for every character (characters.json).

// alphabetic16 contains characters that are alphabetic since Unicode 15.0 but are not letters.
var alphabetic16 = [][2]rune{
	{0x363, 0x36f}, {0x897, 0x897}, {0x1dd3, 0x1de6}, {0x10d69, 0x10d69}, {0x10efc, 0x10efc}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2},
	{0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113cd}, {0x1611e, 0x1612e},
}

// looseWords contains characters that match \w, but not \w in a set.
const looseWords = `\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}`

// rangesBody returns ranges as a part of a set.
func rangesBody(ranges [][2]rune) string {
	var body strings.Builder
	for _, r := range ranges {
		fmt.Fprintf(&body, `\x{%x}-\x{%x}`, r[0], r[1])
	}
	return body.String()
}

// tableRanges returns the characters of a table.
func tableRanges(table *unicode.RangeTable) (all [][2]rune) {
	add := func(low, high, stride rune) {
		if stride == 1 {
			all = append(all, [2]rune{low, high})
			return
		}
		for r := low; r <= high; r += stride {
			all = append(all, [2]rune{r, r})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return all
}

// categoryBody returns the characters of general categories.
func categoryBody(names ...string) string {
	var body strings.Builder
	for _, name := range names {
		body.WriteString(`\p{` + name + `}` + rangesBody(added16(name)))
	}
	return body.String()
}

// setBodies contains the named sets, as in [[:alpha:]].
var setBodies = sync.OnceValue(func() map[string]string {
	alpha := categoryBody("L", "Nl") + rangesBody(tableRanges(unicode.Other_Alphabetic)) + rangesBody(alphabetic16)
	return map[string]string{
		"alpha":  alpha,
		"alnum":  alpha + categoryBody("Nd"),
		"ascii":  `\x{0}-\x{7f}`,
		"blank":  `\t` + categoryBody("Zs"),
		"cntrl":  categoryBody("Cc"),
		"digit":  categoryBody("Nd"),
		"lower":  categoryBody("Ll") + rangesBody(tableRanges(unicode.Other_Lowercase)),
		"punct":  categoryBody("P", "S"),
		"space":  `\s`,
		"upper":  categoryBody("Lu") + rangesBody(tableRanges(unicode.Other_Uppercase)),
		"word":   alpha + categoryBody("M", "Nd", "Pc"),
		"xdigit": `0-9A-Fa-f`,
	}
})

// propertySets maps properties to the named sets with the same characters.
var propertySets = map[string]string{
	"Alnum": "alnum", "Alpha": "alpha", "Alphabetic": "alpha", "Lower": "lower", "Lowercase": "lower", "Upper": "upper", "Uppercase": "upper",
	"Space": "space", "White_Space": "space", "Word": "word",
}

// classEscapes maps escapes to named sets. A capital letter means the complement.
var classEscapes = map[byte]string{'d': "digit", 'h': "xdigit", 's': "space", 'w': "word"}

// wordBody returns the word characters outside of sets.
func wordBody() string { return setBodies()["word"] + looseWords }

// boundary returns an expression for a word boundary.
func boundary(not bool) string {
	word := "[" + wordBody() + "]"
	if not {
		return "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
	}
	return "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
}

// namedSet parses a set such as [:alpha:] or [:^alpha:] within another set.
func (t *translator) namedSet() (body string, negated bool, err error) {
	end := strings.Index(t.rest, ":]")
	if end < 2 {
		return "", false, fmt.Errorf("unsupported set %.10q", t.rest)
	}
	name, negated := strings.CutPrefix(t.rest[2:end], "^")
	body, found := setBodies()[name]
	if !found {
		return "", false, fmt.Errorf("unsupported set %.10q, want a set named %s", t.rest, strings.Join(slices.Sorted(maps.Keys(setBodies())), ", "))
	}
	t.rest = t.rest[end+2:]
	return body, negated, nil
}

// class parses an escape or a property for a class of characters, if there is one here. body
// contains the characters of the class or, if negated, of its complement.
func (t *translator) class(inSet bool) (body string, negated, found bool, err error) {
	if len(t.rest) < 2 {
		return "", false, false, nil
	}
	if c := t.rest[1]; c == 'p' || c == 'P' {
		body, negated, err = t.property(inSet)
		return body, negated, true, err
	}
	name, isClass := classEscapes[t.rest[1]|0x20]
	if !isClass {
		return "", false, false, nil
	}
	negated = t.rest[1]&0x20 == 0
	t.rest = t.rest[2:]
	if name == "word" && !inSet {
		return wordBody(), negated, true, nil
	}
	return setBodies()[name], negated, true, nil
}

// property parses \p{...}, \P{...} or \p{^...}.
func (t *translator) property(inSet bool) (body string, negated bool, err error) {
	end := strings.IndexByte(t.rest, '}')
	if len(t.rest) < 3 || t.rest[2] != '{' || end < 0 {
		return "", false, fmt.Errorf("a property without braces")
	}
	name, inverted := strings.CutPrefix(t.rest[3:end], "^")
	negated = inverted != (t.rest[1] == 'P')
	set, isSet := propertySets[name]
	switch {
	case name == "Word" && !inSet:
		body = wordBody()
	case isSet:
		body = setBodies()[set]
	case name == "Letter":
		body = categoryBody("L")
	case name == "Punct":
		body = categoryBody("P")
	case name == "Mn": // without the character that 16.0 moved to Mc
		body = rangesBody(ranges("Mn")) + rangesBody(added16("Mn"))
	case knownProperty(name):
		body = categoryBody(name)
	default:
		return "", false, fmt.Errorf("unsupported property %.20q", name)
	}
	t.rest = t.rest[end+1:]
	return body, negated, nil
}

// bracketed returns an expression that matches a character of a class.
func bracketed(body string, negated bool) string {
	switch {
	case negated:
		return "[^" + body + "]"
	case body == `\s`:
		return body
	}
	return "[" + body + "]"
}

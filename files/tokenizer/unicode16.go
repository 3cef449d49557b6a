package tokenizer

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The reference implementation classifies characters in patterns by Unicode 16.0, the standard
// library by 15.0. These are the additions of 15.1 and 16.0, by general category or script, from
// their DerivedGeneralCategory.txt and Scripts.txt:
var unicode16 = map[string][][2]rune{
	"Ll": {{0x1c8a, 0x1c8a}, {0xa7cd, 0xa7cd}, {0xa7db, 0xa7db}, {0x10d70, 0x10d85}},
	"Lm": {{0x10d4e, 0x10d4e}, {0x10d6f, 0x10d6f}, {0x16d40, 0x16d42}, {0x16d6b, 0x16d6c}},
	"Lo": {
		{0x105c0, 0x105f3}, {0x10d4a, 0x10d4d}, {0x10d4f, 0x10d4f}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
		{0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7}, {0x113d1, 0x113d1},
		{0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa}, {0x16100, 0x1611d}, {0x16d43, 0x16d6a},
		{0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed}, {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d},
	},
	"Lu": {{0x1c89, 0x1c89}, {0xa7cb, 0xa7cc}, {0xa7da, 0xa7da}, {0xa7dc, 0xa7dc}, {0x10d50, 0x10d65}},
	"Mc": {
		{0x113b8, 0x113ba}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113cd},
		{0x113cf, 0x113cf}, {0x1171e, 0x1171e}, {0x1612a, 0x1612c},
	},
	"Mn": {
		{0x897, 0x897}, {0x10d69, 0x10d6d}, {0x10efc, 0x10efc}, {0x113bb, 0x113c0}, {0x113ce, 0x113ce},
		{0x113d0, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x11f5a, 0x11f5a}, {0x1611e, 0x16129},
		{0x1612d, 0x1612f}, {0x1e5ee, 0x1e5ef},
	},
	"Nd": {
		{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139}, {0x16d70, 0x16d79},
		{0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa},
	},
	"Pd": {{0x10d6e, 0x10d6e}},
	"Po": {
		{0x1b4e, 0x1b4f}, {0x1b7f, 0x1b7f}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x11be1, 0x11be1},
		{0x16d6d, 0x16d6f}, {0x1e5ff, 0x1e5ff},
	},
	"Sm": {{0x10d8e, 0x10d8f}},
	"So": {
		{0x2427, 0x2429}, {0x2ffc, 0x2fff}, {0x31e4, 0x31e5}, {0x31ef, 0x31ef}, {0x1cc00, 0x1ccef},
		{0x1cd00, 0x1ceb3}, {0x1f8b2, 0x1f8bb}, {0x1f8c0, 0x1f8c1}, {0x1fa89, 0x1fa89}, {0x1fa8f, 0x1fa8f},
		{0x1fabe, 0x1fabe}, {0x1fac6, 0x1fac6}, {0x1fadc, 0x1fadc}, {0x1fadf, 0x1fadf}, {0x1fae9, 0x1fae9},
		{0x1fbcb, 0x1fbef},
	},
	"Arabic":   {{0x897, 0x897}, {0x10ec2, 0x10ec4}, {0x10efc, 0x10efc}},
	"Cyrillic": {{0x1c89, 0x1c8a}},
	"Han":      {{0x2ebf0, 0x2ee5d}},
	"Latin":    {{0xa7cb, 0xa7cd}, {0xa7da, 0xa7dc}},
}

// movedToMc is the only character whose category 16.0 changed: from Mn to Mc.
const movedToMc = 0x1171e

// scripts contains the scripts whose tables were compared with the reference implementation.
var scripts = []string{
	"Arabic", "Armenian", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai",
}

// categories contains the general categories that a pattern may name.
var categories = []string{
	"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
	"Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp",
}

// knownProperty reports whether a pattern may name a property.
func knownProperty(name string) bool {
	return slices.Contains(categories, name) || slices.Contains(scripts, name) ||
		slices.Contains([]string{"L", "M", "N", "P", "S", "Z"}, name)
}

// added16 returns the additions of Unicode 16.0 to a category or script of 15.0.
func added16(name string) [][2]rune {
	if len(name) != 1 {
		return unicode16[name]
	}
	var all [][2]rune
	for _, category := range categories {
		if category[:1] == name {
			all = append(all, unicode16[category]...)
		}
	}
	return all
}

// ranges returns the characters of a category in 15.0, without the character that 16.0 moved.
func ranges(category string) (all [][2]rune) {
	add := func(low, high, stride rune) {
		for r := low; r <= high; r += stride {
			switch n := len(all); {
			case r == movedToMc:
			case n > 0 && all[n-1][1] == r-1:
				all[n-1][1] = r
			default:
				all = append(all, [2]rune{r, r})
			}
		}
	}
	table := unicode.Categories[category]
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return all
}

// class is a set of properties of a character.
type class uint8

const (
	letter class = 1 << iota
	number
	space
	mark
	punctuation
	symbol
	numeric // by Unicode 17.0, as in the Digits pre-tokenizer
)

// classTable maps characters to their classes in two steps.
type classTable struct {
	pages [0x1100]uint16
	rows  [][256]class
}

func (t *classTable) of(r rune) class {
	return t.rows[t.pages[r>>8]][r&0xff]
}

// classes returns the table, which is created on first use.
var classes = sync.OnceValue(func() *classTable {
	all := make([]class, 0x110000)
	mark1 := func(table *unicode.RangeTable, c class) {
		for _, r := range table.R16 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				all[x] |= c
			}
		}
		for _, r := range table.R32 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				all[x] |= c
			}
		}
	}
	mark1(unicode.White_Space, space)
	for name, c := range map[string]class{"L": letter, "N": number | numeric, "M": mark, "P": punctuation, "S": symbol} {
		mark1(unicode.Categories[name], c)
		for _, r := range added16(name) {
			for x := r[0]; x <= r[1]; x++ {
				all[x] |= c
			}
		}
	}
	for _, r := range [][2]rune{{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}} {
		for x := r[0]; x <= r[1]; x++ {
			all[x] |= numeric
		}
	}
	table := &classTable{}
	known := map[[256]class]uint16{}
	for page := range table.pages {
		row := [256]class(all[page<<8:])
		number, found := known[row]
		if !found {
			number = uint16(len(table.rows))
			known[row] = number
			table.rows = append(table.rows, row)
		}
		table.pages[page] = number
	}
	return table
})

// isWord reports whether a character is a word character, as UTS 18 defines \w.
func isWord(r rune) bool {
	return classes().of(r)&(letter|mark) != 0 ||
		unicode.IsOneOf([]*unicode.RangeTable{unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control}, r) ||
		slices.ContainsFunc(unicode16["Nd"], func(x [2]rune) bool { return r >= x[0] && r <= x[1] })
}

// punctuation8 contains the punctuation added since Unicode 9.0, which the reference implementation
// does not know.
var punctuation8 = [][2]rune{
	{0x61d, 0x61d}, {0x9fd, 0x9fd}, {0xa76, 0xa76}, {0xc77, 0xc77}, {0xc84, 0xc84}, {0x1b7d, 0x1b7e}, {0x2e43, 0x2e4f},
	{0x2e52, 0x2e5d}, {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d},
	{0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11a9c},
	{0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff},
	{0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f},
}

// isPunctuation reports whether a character is punctuation in the Punctuation pre-tokenizer: by
// Unicode 8.0, plus ASCII symbols.
func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsPunct(r) || unicode.IsSymbol(r)
	}
	return r == 0x166d || r == 0x111c9 || unicode.IsPunct(r) && !slices.ContainsFunc(punctuation8, func(x [2]rune) bool { return r >= x[0] && r <= x[1] })
}

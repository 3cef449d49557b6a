package plain

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// maxMarks is the maximum number of consecutive combining marks, such as accents and vowels. More
// of them form a pile that covers neighbouring lines.
const maxMarks = 3

// brailleBlank is an invisible symbol.
const brailleBlank = '\u2800'

// CheckName returns an error unless a text is a valid display name of at most size bytes. A valid
// name is one line of printable UTF-8 without spaces at its ends. It contains no invisible
// characters, no changes of the writing direction, and no piles of combining marks.
func CheckName(text string, size int) error {
	switch {
	case text == "":
		return errors.New("empty")
	case len(text) > size:
		return fmt.Errorf("%d bytes, at most %d are allowed", len(text), size)
	case !utf8.ValidString(text):
		return errors.New("not valid UTF-8")
	case text[0] == ' ' || text[len(text)-1] == ' ':
		return errors.New("starts or ends with a space")
	}
	marks := maxMarks // a mark at the start has no base character
	for _, r := range text {
		if !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == brailleBlank {
			return fmt.Errorf("character %U is invisible or changes the display of other characters", r)
		}
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		if marks > maxMarks {
			return fmt.Errorf("the combining mark %U follows %d other marks, or no character", r, maxMarks)
		}
	}
	return nil
}

// Package strictjson rejects JSON that different parsers read differently.
package strictjson

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// CheckEscapes returns an error for text that JSON parsers decode to different strings: bytes that
// are not UTF-8, and escapes of half a surrogate pair.
func CheckEscapes(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8")
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		unit, ok := hexUnit(text, i)
		switch {
		case !ok || unit < 0xd800 || unit > 0xdfff:
			continue
		case unit < 0xdc00 && i+6 < len(text) && text[i+5] == '\\':
			if low, ok := hexUnit(text, i+6); ok && low >= 0xdc00 && low <= 0xdfff {
				i += 10
				continue
			}
		}
		return fmt.Errorf("byte %d: half a surrogate pair", i-1)
	}
	return nil
}

// hexUnit parses the u of an escape and the four hexadecimal digits after it.
func hexUnit(text []byte, at int) (unit int, ok bool) {
	if at+5 > len(text) || text[at] != 'u' {
		return 0, false
	}
	for _, c := range text[at+1 : at+5] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			unit = unit<<4 | int(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}

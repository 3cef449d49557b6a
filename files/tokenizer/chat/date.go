package chat

import (
	"strconv"
	"strings"
	"time"
)

// dates are the codes of strftime that stand for other codes.
var dates = map[byte]string{
	'F': "%Y-%m-%d", 'T': "%H:%M:%S", 'R': "%H:%M", 'D': "%m/%d/%y", 'x': "%m/%d/%y", 'X': "%H:%M:%S", 'r': "%I:%M:%S %p",
	'c': "%a %b %e %H:%M:%S %Y",
}

// date is the function strftime_now: the codes of glibc in the locale C.
func (r *renderer) date(format string) string {
	if r.now.IsZero() {
		r.unsupported("strftime_now")
	}
	b := r.buffer()
	for {
		text, rest, found := strings.Cut(format, "%")
		b.add(text)
		if !found {
			return b.String()
		}
		r.step(1)
		code, after := r.dateCode(rest)
		b.add(r.datePart(code))
		format = after
	}
}

// dateCode is a code of strftime: %-d or %_3j.
type dateCode struct {
	flag   byte // - _ 0 ^ #; 0: none
	width  int  // -1: left out
	letter byte
}

func (r *renderer) dateCode(text string) (code dateCode, rest string) {
	if code.width = -1; text != "" && strings.IndexByte("-_0^#", text[0]) >= 0 {
		code.flag, text = text[0], text[1:]
	}
	code.width, text = r.formatNumber(text)
	modifier := byte(0)
	if text != "" && (text[0] == 'E' || text[0] == 'O') {
		modifier, text = text[0], text[1:]
	}
	if text == "" {
		r.unsupported("strftime_now with an incomplete code at the end")
	}
	if code.letter = text[0]; modifier != 0 && strings.IndexByte(map[byte]string{'E': "cCxXyY", 'O': "bBdehHImMSuUVwWy"}[modifier], code.letter) < 0 {
		r.unsupported("strftime_now with %%%c%c", modifier, code.letter)
	}
	return code, text[1:]
}

func (r *renderer) datePart(code dateCode) string {
	plain := code.flag == 0 && code.width < 0
	if text, isNumber := dateNumber(r.now, code.letter); isNumber {
		if code.flag == '^' || code.flag == '#' {
			r.unsupported("strftime_now with %%%c%c", code.flag, code.letter)
		}
		return r.dateDigits(code, text)
	}
	text := ""
	switch code.letter {
	case 'a', 'A', 'b', 'B', 'h', 'p', 'P':
		return r.dateName(code)
	case '%':
		text = "%"
	case 'n':
		text = "\n"
	case 't':
		text = "\t"
	case 'z', 'Z': // transformers reads the clock without a zone
	case 'f':
		text = strconv.Itoa(1e6 + r.now.Nanosecond()/1000)[1:]
	default:
		if dates[code.letter] == "" {
			r.unsupported("strftime_now with %%%c", code.letter)
		}
		text = r.date(dates[code.letter])
	}
	if !plain {
		r.unsupported("strftime_now with a flag or a width of %%%c", code.letter)
	}
	return text
}

// dateName is the name of a day or a month, or the half of a day.
func (r *renderer) dateName(code dateCode) string {
	text := r.now.Format(map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm"}[code.letter])
	switch {
	case code.flag == '#' && code.letter == 'p':
		text = strings.ToLower(text)
	case code.letter != 'P' && (code.flag == '^' || code.flag == '#'):
		text = strings.ToUpper(text)
	}
	fill := " "
	if code.flag == '0' {
		fill = "0"
	}
	return r.repeated(fill, int64(code.width-len(text))) + text
}

// dateNumber returns the digits of a code that stands for a number, with the spaces or zeros that glibc writes.
func dateNumber(now time.Time, letter byte) (text string, isNumber bool) {
	pad := func(n, width int, fill string) (string, bool) {
		digits := strconv.Itoa(n)
		return strings.Repeat(fill, max(width-len(digits), 0)) + digits, true
	}
	year, week := now.ISOWeek()
	day := int(now.Weekday())
	switch letter {
	case 'd':
		return pad(now.Day(), 2, "0")
	case 'e':
		return pad(now.Day(), 2, " ")
	case 'H':
		return pad(now.Hour(), 2, "0")
	case 'k':
		return pad(now.Hour(), 2, " ")
	case 'I':
		return pad((now.Hour()+11)%12+1, 2, "0")
	case 'l':
		return pad((now.Hour()+11)%12+1, 2, " ")
	case 'j':
		return pad(now.YearDay(), 3, "0")
	case 'm':
		return pad(int(now.Month()), 2, "0")
	case 'M':
		return pad(now.Minute(), 2, "0")
	case 'S':
		return pad(now.Second(), 2, "0")
	case 'y':
		return pad(now.Year()%100, 2, "0")
	case 'Y':
		return pad(now.Year(), 1, "0")
	case 'C':
		return pad(now.Year()/100, 2, "0")
	case 'G':
		return pad(year, 1, "0")
	case 'g':
		return pad(year%100, 2, "0")
	case 'V':
		return pad(week, 2, "0")
	case 'U':
		return pad((now.YearDay()+6-day)/7, 2, "0")
	case 'W':
		return pad((now.YearDay()+6-(day+6)%7)/7, 2, "0")
	case 'w':
		return pad(day, 1, "0")
	case 'u':
		return pad((day+6)%7+1, 1, "0")
	}
	return "", false
}

// dateDigits returns a number with the flag and the width of its code.
func (r *renderer) dateDigits(code dateCode, text string) string {
	digits := strings.TrimLeft(text, "0 ")
	if digits == "" {
		digits = "0"
	}
	width, fill := max(code.width, len(text)), "0"
	switch {
	case code.flag == '-':
		if width = code.width; code.width > 0 {
			r.unsupported("strftime_now with %%-%d%c", code.width, code.letter)
		}
	case code.flag == '_', code.flag == 0 && strings.IndexByte("ekl", code.letter) >= 0:
		fill = " "
	}
	return r.repeated(fill, int64(width-len(digits))) + digits
}

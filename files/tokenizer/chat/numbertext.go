package chat

import (
	"math"
	"strconv"
	"strings"
)

// realText returns a float without its sign as Python's verbs e, f and g write it. If alternate is
// set, it keeps the decimal point and trailing zeros.
func realText(value float64, verb byte, precision int, alternate bool) string {
	value = math.Abs(value)
	switch verb {
	case 'e', 'E', 'f', 'F':
		text := strconv.FormatFloat(value, verb|0x20, precision, 64)
		if alternate && precision == 0 {
			mantissa, exponent, scientific := strings.Cut(text, "e")
			if text = mantissa + "."; scientific {
				text += "e" + exponent
			}
		}
		if verb == 'E' {
			text = strings.ToUpper(text)
		}
		return text
	}
	text := generalText(value, max(precision, 1), alternate, false)
	if verb == 'G' {
		text = strings.ToUpper(text)
	}
	return text
}

// generalText implements the verb g: scientific form for small and large numbers. withPoint selects
// the form without a verb, which keeps a digit after the point.
func generalText(value float64, precision int, alternate, withPoint bool) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(value, 'e', precision-1, 64), "e")
	digits := strings.Replace(mantissa, ".", "", 1)
	place, _ := strconv.Atoi(exponent)
	limit := precision
	if withPoint {
		limit--
	}
	if place < -4 || place >= limit {
		if !alternate {
			digits = digits[:1] + strings.TrimRight(digits[1:], "0")
		}
		text := digits[:1]
		if len(digits) > 1 || alternate {
			text += "." + digits[1:]
		}
		return text + "e" + exponent
	}
	var whole, fraction string
	if place >= 0 {
		whole, fraction = digits[:place+1], digits[place+1:]
	} else {
		whole, fraction = "0", strings.Repeat("0", -place-1)+digits
	}
	if !alternate {
		fraction = strings.TrimRight(fraction, "0")
	}
	switch {
	case fraction == "" && withPoint:
		return whole + ".0"
	case fraction == "" && !alternate:
		return whole
	}
	return whole + "." + fraction
}

// ascii implements Python's ascii: repr with escapes for all characters outside of ASCII.
func (r *renderer) ascii(value any) string {
	inner := r.buffer()
	r.repr(inner, value, 0)
	b := r.buffer()
	for _, c := range inner.String() {
		if c <= '~' {
			b.add(string(c))
		} else {
			b.add(codeEscape(c))
		}
	}
	return b.String()
}

// grouped writes separators between groups of digits. It adds leading zeros up to the width.
func grouped(digits string, separator byte, size, width int) string {
	// n digits have (n-1)/size separators.
	if n := width*size/(size+1) + 1; width > 0 && n > len(digits) {
		digits = strings.Repeat("0", n-len(digits)) + digits
	}
	var out []byte
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%size == 0 {
			out = append(out, separator)
		}
		out = append(out, digits[i])
	}
	return string(out)
}

package tokenizer

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// parseScore parses a JSON number as the reference implementation does: the digits, as far as they
// fit into 64 bits, multiplied or divided by a power of ten, with a rounding each. The result is
// sometimes a neighbour of the nearest float64. If two segmentations of a word have the same sum
// apart from rounding, such a difference decides between them.
func parseScore(raw json.RawMessage) (score float64, ok bool) {
	text, negative := strings.CutPrefix(string(raw), "-")
	if text == "" || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, exponent, full := uint64(0), 0, false
	for i, digit := range []byte(whole + fraction) {
		next := uint64(digit - '0')
		full = full || digits > (math.MaxUint64-next)/10
		if !full {
			digits = 10*digits + next
		}
		switch inFraction := i >= len(whole); {
		case full && !inFraction:
			exponent++
		case !full && inFraction:
			exponent--
		}
	}
	if power != "" {
		value, err := strconv.Atoi(power)
		if err != nil || value > maxPower || value < -maxPower {
			return 0, false
		}
		exponent += value
	}
	score = scaled(float64(digits), exponent)
	if negative {
		score = -score
	}
	return score, !math.IsInf(score, 0)
}

// maxPower is the maximum exponent of scores.
const maxPower = 10_000

// scaled returns a number times a power of ten. The largest power used is 1e308.
func scaled(x float64, exponent int) float64 {
	const most = 308
	for ; exponent < -most && x != 0; exponent += most {
		x /= 1e308
	}
	switch {
	case x == 0:
		return 0
	case exponent > most:
		return math.Inf(1)
	case exponent < 0:
		return x / powerOfTen(-exponent)
	}
	return x * powerOfTen(exponent)
}

// powerOfTen returns the float64 nearest to a power of ten up to 308.
func powerOfTen(exponent int) float64 {
	value, err := strconv.ParseFloat("1e"+strconv.Itoa(exponent), 64)
	if err != nil {
		panic("tokenizer: invalid power of ten: " + err.Error())
	}
	return value
}

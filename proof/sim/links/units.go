package links

import (
	"math"
	"math/bits"
)

// nanoseconds returns the time that one of sharers needs for an amount of work, in millionths of a
// byte, at a rate in bytes per second that all share equally. The result is rounded up, so that the
// work is complete by then.
func nanoseconds(work, sharers, rate int64) int64 {
	return mulDiv(work, 1000*sharers, rate, rate-1)
}

// amount returns the work, in millionths of a byte, that one of sharers completes in some
// nanoseconds.
func amount(nanoseconds, sharers, rate int64) int64 {
	return mulDiv(nanoseconds, rate, 1000*sharers, 0)
}

// mulDiv returns (a·b + add) / c, or the largest number if the result is larger. All arguments are
// nonnegative.
func mulDiv(a, b, c, add int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	low, carry := bits.Add64(low, uint64(add), 0)
	high += carry
	if high >= uint64(c) {
		return math.MaxInt64 / 4
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64/4))
}

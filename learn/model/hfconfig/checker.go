package hfconfig

import "fmt"

// Checker checks fields and holds the first complaint.
type Checker struct{ err error }

// Err returns the first complaint.
func (c *Checker) Err() error { return c.err }

// Fail complains.
func (c *Checker) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
}

// Refuse complains about a value that asks for another network than the one that is computed.
func (c *Checker) Refuse(field string, value any) { c.Fail("%s %v is not supported", field, value) }

// Size is a count from 1 to limit; a fallback of 0 makes the field required. After a
// complaint it is 1, so that nobody divides by zero.
func (c *Checker) Size(field string, value *int, fallback, limit int) int {
	switch {
	case value == nil && fallback == 0:
		c.Fail("%s is missing", field)
		return 1
	case value == nil:
		return fallback
	case *value < 1 || *value > limit:
		c.Fail("%s is %d, want 1 to %d", field, *value, limit)
		return 1
	}
	return *value
}

// Count is a count from 0 to limit.
func (c *Checker) Count(field string, value *int, fallback, limit int) int {
	switch {
	case value == nil:
		return fallback
	case *value < 0 || *value > limit:
		c.Fail("%s is %d, want 0 to %d", field, *value, limit)
		return 0
	}
	return *value
}

// Number is a value from least to most; a fallback below least makes the field required.
func (c *Checker) Number(field string, value *float64, fallback, least, most float64) float64 {
	switch {
	case value == nil && fallback < least:
		c.Fail("%s is missing", field)
		return least
	case value == nil:
		return fallback
	case !(*value >= least && *value <= most):
		c.Fail("%s is %v, want %v to %v", field, *value, least, most)
	}
	return *value
}

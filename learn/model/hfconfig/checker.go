package hfconfig

import "fmt"

// Checker checks fields and keeps the first error.
type Checker struct{ err error }

// Err returns the first error.
func (c *Checker) Err() error { return c.err }

// Fail records an error, if it is the first.
func (c *Checker) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
}

// Refuse records an error for a value that requires an unsupported network.
func (c *Checker) Refuse(field string, value any) { c.Fail("%s %v is not supported", field, value) }

// Size returns a count from 1 to limit. A fallback of 0 makes the field required. After an error it
// returns 1, so that divisions by it are safe.
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

// Count returns a count from 0 to limit.
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

// Number returns a value from minimum to maximum. A fallback below minimum makes the field required.
func (c *Checker) Number(field string, value *float64, fallback, minimum, maximum float64) float64 {
	switch {
	case value == nil && fallback < minimum:
		c.Fail("%s is missing", field)
		return minimum
	case value == nil:
		return fallback
	case !(*value >= minimum && *value <= maximum):
		c.Fail("%s is %v, want %v to %v", field, *value, minimum, maximum)
	}
	return *value
}

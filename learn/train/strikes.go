package train

// maxStrikes is the number of failures in a row after which an optimizer leaves its device.
const maxStrikes = 3

// strikes counts the failures of a device in a row.
type strikes struct {
	failures int
	newest   comparisons // step of the newest failure
}

// next counts a failure in a step or in the step after it, and reports whether there were too many.
func (s *strikes) next(step comparisons) bool {
	if step > s.newest+1 {
		s.failures = 0
	}
	s.failures, s.newest = s.failures+1, step
	return s.failures >= maxStrikes
}

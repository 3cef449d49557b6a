package tally

// ErrTooManyBefore is for the tests from outside the package.
var ErrTooManyBefore = errTooManyBefore

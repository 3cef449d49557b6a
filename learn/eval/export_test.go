package eval

// ErrTooLong is for the tests from outside the package.
var ErrTooLong = errTooLong

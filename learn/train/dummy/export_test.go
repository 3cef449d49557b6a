package dummy

// ErrModel is for the tests from outside the package.
var ErrModel = errModel

package generate

// ErrOptions is for the tests from outside the package.
var ErrOptions = errOptions

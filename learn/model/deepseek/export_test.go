package deepseek

// ErrOption is for the tests from outside the package.
var ErrOption = errOption

package toy

// ErrStep is for the tests from outside the package.
var ErrStep = errStep

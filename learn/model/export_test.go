package model

// ErrArchitecture is for the tests from outside the package.
var ErrArchitecture = errArchitecture

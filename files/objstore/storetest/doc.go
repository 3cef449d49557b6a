// Package storetest tests implementations of objstore.Store: Run checks the rules that each must
// follow.
package storetest

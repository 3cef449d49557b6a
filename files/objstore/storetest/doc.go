// Package storetest tests implementations of objstore.Store. Run checks the contract of the
// interface.
package storetest

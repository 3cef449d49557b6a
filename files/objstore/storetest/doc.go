// Package storetest holds what every objstore.Store must do: Run tests one.
package storetest

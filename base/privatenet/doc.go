// Package privatenet distinguishes private network addresses from public internet addresses. Private
// addresses belong to this machine or to a private network, or are special addresses that belong to no
// single machine. A program that connects to addresses from unknown clients needs this distinction.
// Otherwise, clients could make it connect to services that only this machine can reach.
//
// Range returns the private network of an address. Public reports whether an address is public.
package privatenet

// Package privatenet distinguishes private network addresses from public internet addresses.
// Private are addresses of this machine, addresses of private networks, and special addresses that
// belong to no single machine. A program that connects to addresses from unknown clients uses it,
// so that they cannot make it connect to services that only this machine can reach.
//
// Range returns the private network of an address. Public reports whether an address is public.
package privatenet

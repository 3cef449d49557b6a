// Package privatenet tells addresses of inner networks from those of the Internet: of this machine, of
// private networks, and those that lead nowhere in particular. A program that is told by strangers where to
// connect to asks it first, so that nobody can make a machine talk to what only it can reach.
//
// Range returns the inner network of an address; Public whether it has none.
package privatenet

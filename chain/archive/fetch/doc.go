// Package fetch asks a node of a chain for what an archive of a run has not. It is apart from the archives, which are
// read in places that reach no node, such as a browser.
package fetch

// Package fetch downloads a run's new transactions from a node of a chain into an archive. It is
// separate from package archive because archives are also read where no node is reachable, for
// example in a browser.
package fetch

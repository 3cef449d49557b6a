// Package bucket reads token files from an object store.
//
// Open lists the token files below a folder of the store, except in folders named heldout, and
// sorts them in the natural order of their names (tokens.Compare). It returns a Source, which
// reads the listed versions: if a file is replaced or removed later, reading it returns
// tokens.ErrChanged. Close closes the Source and its store.
package bucket

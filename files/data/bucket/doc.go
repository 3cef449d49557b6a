// Package bucket reads token files from an object store.
//
// Open lists the token files below a folder of the store and puts them into the natural
// order of their names (tokens.Compare); folders named heldout are left out. It returns a
// Source, which reads the versions that were listed: a file that is replaced or removed
// later is tokens.ErrChanged. Close ends the Source and its store.
package bucket

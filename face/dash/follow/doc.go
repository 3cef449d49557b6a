// Package follow keeps the history of runs from their logs: files that grow, the journals of a
// server or the archives of runs on a chain.
//
// A Log follows one file. Run verifies what is in it and goes on as the file grows; View is what is
// known at the moment. Of a journal the history is kept beside it, so that a program that starts
// again reads only what is new; it may be removed, and is made again from the journal.
package follow

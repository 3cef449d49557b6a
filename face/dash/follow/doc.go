// Package follow maintains the history of runs from growing log files: journals of a server or
// archives of runs on a chain.
//
// A Log follows one file. Run verifies its contents and continues as the file grows. View returns
// the current result. The history of a journal can be saved in a second file, so that a restarted
// program reads only new entries. That file may be removed; it is recreated from the journal.
package follow

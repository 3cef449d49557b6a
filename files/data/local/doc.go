// Package local reads sequences from a folder of token files on this machine.
//
// Open finds the files *.ds, *.bin and *.npy of a folder, not of folders below it, puts
// them into the natural order of their names (tokens.Compare) and returns a Folder;
// Folder.Sequences reads the sequences of a batch; Close ends it. Package files/data/tokens
// says what a token file is and how sequences are numbered.
//
// When a data.json that psyche data tokenize wrote describes the files, Open compares the
// size of a token, the files' names and their lengths with it; only psyche data inspect
// reads everything and compares the hashes.
//
// Files are read with pread, not mapped into memory: the page cache serves both alike,
// and a file that somebody cuts off under a mapping ends the process with SIGBUS, where a
// read returns an error. Every read checks that length and time of change are those that
// the file had when it was opened.
package local

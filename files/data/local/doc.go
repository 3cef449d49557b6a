// Package local reads sequences from a folder of token files on this machine.
//
// Open finds the files *.ds, *.bin and *.npy of a folder, without subfolders, sorts them in the
// natural order of their names (tokens.Compare), and returns a Folder. Folder.Sequences reads the
// sequences of a batch. Close closes the files. Package files/data/tokens defines token files and
// the numbers of sequences.
//
// If a data.json of psyche data tokenize describes the files, Open compares the size of a token,
// the names of the files and their lengths with it. Only psyche data inspect, which reads
// everything, compares the hashes.
//
// Files are read with pread and not mapped into memory. Both use the page cache, but truncating a
// mapped file ends the process with SIGBUS, while a read returns an error. Every read checks that
// the length and time of change are the same as when the file was opened.
package local

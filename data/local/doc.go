// Package local reads sequences from a folder of token files on this machine.
//
// Open finds the files *.ds, *.bin and *.npy of a folder, in the order of their names,
// and returns a Folder; Folder.Sequences reads the sequences of a batch; Close ends it.
// A token file is nothing but token ids, little-endian, all of two or all of four
// bytes: the format of pre-tokenised data sets that hold what a numpy array's
// tofile writes. Files that begin with a numpy header are refused, because the header
// would be read as tokens.
//
// Within a file, sequence i begins at token i·SeqLen and has SeqLen+1 tokens, so that
// the last token of one is the first of the next; what is left at a file's end is
// dropped. Sequences are numbered over all files; a seed puts them in another order for
// every pass (package data/shuffle).
package local

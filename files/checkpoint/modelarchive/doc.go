// Package modelarchive implements model archives: the folder of a model as one sequence of bytes,
// with random access. The host of a run sends clients the first model of the run in this form.
//
// Open makes an Archive from a folder without loading it. Unpack writes the folder from a stream,
// verifies every file, and puts the files in place atomically. The bytes are
//
//	psyche-model-1\n
//	number of files (2 bytes)
//	for each file: length of its name (1), name, size (8), BLAKE3 (32)
//	the contents of the files, in that order
//
// with little-endian integers. The archive has only files that belong to a checkpoint, in ascending
// order of names.
package modelarchive

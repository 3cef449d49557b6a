// Package parcel sends the folder of a model as one sequence of bytes, any part of which can be read
// alone: the host of a run hands out the model that the run begins with.
//
// Open makes a Parcel of a folder without loading it. Unpack makes the folder again from what comes,
// verifies every file and puts them in place in one step. The bytes are
//
//	psyche-model-1\n
//	number of files (2 bytes)
//	of each file: length of its name (1), name, size (8), BLAKE3 (32)
//	the contents of the files, in that order
//
// with integers little endian. Only files that belong to a checkpoint are in it, ascending by name.
package parcel

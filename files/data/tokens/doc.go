// Package tokens reads files of token IDs as numbered sequences. Packages local, web and bucket
// provide the bytes of the files; this package interprets them.
//
// A token file contains only token IDs, little-endian, all of two, four or eight bytes, as written
// by tofile of a numpy array. The header of llm.c is skipped. A file that begins with a numpy
// header is refused, because the header would be read as tokens.
//
// The size of a token is never guessed from the content of a file. ReadSidecar and ReadHeader read
// the size from files of datatrove, nanotron and Megatron, and from the header of llm.c. Without
// such a description, AssumeSize decides. Begin refuses a file that looks like larger tokens at its
// start.
//
// The main type is Set, the sequences of several files:
//
//	set, err := tokens.New(files, tokens.Options{SeqLen: 2048, TokenSize: 2})
//	sequences, err := set.Sequences(ctx, batch)
//
// Within a file, sequence i begins at token i·SeqLen and has SeqLen+1 tokens, so its last token is
// the first token of the next sequence. The remainder of a file is dropped. Sequences are numbered
// over all files in the order in which New gets the files. A seed gives every pass a different
// order (package files/data/shuffle).
//
// Compare sorts files by name, with numbers within names compared as numbers. The order in which a
// folder or bucket lists its files does not matter, so every client numbers the same data the same
// way.
package tokens

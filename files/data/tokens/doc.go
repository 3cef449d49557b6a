// Package tokens turns files of token ids into numbered sequences, wherever the files
// are: packages local, web and bucket bring the bytes, this one knows what they mean.
//
// A token file is nothing but token ids, little-endian, all of two, four or eight bytes:
// what a numpy array's tofile writes. The header that llm.c writes is passed over; a file
// that begins with a numpy header is refused, because that would be read as tokens.
//
// How many bytes a token has is never guessed where it matters. ReadSidecar and ReadHeader
// read what datatrove, nanotron, Megatron and llm.c say about it, AssumeSize decides where
// nothing does, and Begin refuses a file whose start looks like larger tokens.
// Within a file, sequence i begins at token
// i·SeqLen and has SeqLen+1 tokens, so that the last token of one is the first of the
// next; what is left at a file's end is dropped. Sequences are numbered over all files in
// the order in which New gets them; a seed puts them in another order for every pass
// (package files/data/shuffle).
//
// Files are put into the order of their names by Compare, in which numbers within names
// count as numbers. The order in which a folder or a bucket lists them never matters, so
// that every client numbers the same data the same way.
package tokens

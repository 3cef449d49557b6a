// Package arrowfile reads columns of untrusted Arrow files and streams: the *.arrow files of
// Hugging Face's save_to_disk, pyarrow and Polars, and version 2 of Feather.
// (https://arrow.apache.org/docs/format/Columnar.html)
//
// Open reads the schema. File.Next returns the next record batch. Batch.Column returns a Column,
// which gives its values, or the columns within it. Only the buffers of the requested column, and
// the dictionaries with its values, are read.
//
// Every offset and length in a file is compared with the file, or with its buffer, before it is
// used. Buffers may be compressed with LZ4 or zstd. They never unpack to more than their announced
// size, which is bounded.
//
// The package does not use Arrow's Go module, which takes 30 seconds of CPU time to compile, trusts
// lengths of buffers, and panics on damaged files.
package arrowfile

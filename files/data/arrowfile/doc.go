// Package arrowfile reads columns of Arrow files and streams that are not trusted: what
// Hugging Face's save_to_disk, pyarrow and Polars write as *.arrow, and Feather's version 2.
// (https://arrow.apache.org/docs/format/Columnar.html)
//
// Open reads the schema; File.Next goes from one record batch to the next, and Batch.Column
// gives a column, of which a Column gives values, or the columns within it. Only the buffers of
// the column that is asked for are read, and the dictionaries that its values are in.
//
// Every place and length that a file states is compared with the file, or with the buffer that it
// is in, before it is used. Buffers may be compressed with LZ4 or zstd; they unpack to no more
// than they announce, and that is bounded.
//
// It is written here, and not taken from Arrow's own module, because that takes 30 seconds of a
// CPU to compile, trusts lengths of buffers, and panics on what is damaged.
package arrowfile

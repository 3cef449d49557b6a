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
// The package does not use Arrow's Go module. Version 18.8.0 of the module reads all valid files of our
// tests, but trusts the sizes in a file. We tried it on 8,432 damaged copies of 5 test files of at most
// 11 kB; each copy had one changed byte or a missing end. The module panicked on 323 copies, and still
// on 225 after a call of ValidateFull for each column with this method. For 40 other copies it tried to
// allocate 4 GB to 280 TB, which ends the process and cannot be recovered. Limits of 1 MiB for metadata
// and bodies, which the module offers, did not prevent that. For all of these copies this package
// returns ErrInvalid or other values. The module also adds 7 MB to the program psyche (8 %), 4 modules,
// and 41 seconds of CPU time to the first build of a test.
package arrowfile

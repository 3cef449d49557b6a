// Package parquetfile opens Parquet files that are not trusted.
//
// Open returns a File, which is that of package parquet; CheckHeads and CheckPages look at
// a column of a row group before package parquet reads it. That package takes a file at
// its word: a footer of a few bytes can make it allocate a list of two billion columns,
// and a page can unpack, by its compression or by the run lengths of its encoding, to any
// multiple of what it announces. Both end the process, which nothing can recover from. So
// everything that decides about memory is checked here first: Open walks the footer,
// CheckHeads the heads of all pages, CheckPages unpacks every page into a buffer of the
// announced size and counts what its encoding says it holds.
//
// Features whose memory cannot be bounded are refused: the compressions LZO and LZ4, encryption. Of a file with pages of LZ4_RAW, which package
// parquet reads wrongly, it is given one without, whose pages are unpacked as they are read.
// Package parquet also panics on some damaged files; a deferred Recovered makes errors of that.
package parquetfile

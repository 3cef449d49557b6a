// Package parquetfile opens untrusted Parquet files safely.
//
// Open returns a File, which embeds the File of package parquet. Call CheckHeads and CheckPages for
// a column of a row group before package parquet reads it.
//
// Package parquet trusts a file: a footer of a few bytes can make it allocate a list of two billion
// columns, and a page can unpack, by its compression or by the run lengths of its encoding, to any
// multiple of its announced size. Both end the process without recovery. This package therefore
// first checks everything that determines memory use: Open walks the footer, CheckHeads reads the
// headers of all pages, and CheckPages unpacks every page into a buffer of the announced size and
// counts the values in its encoding.
//
// It refuses features with unbounded memory use: the compressions LZO and LZ4, and encryption.
// Package parquet reads pages in LZ4_RAW wrongly. For a file with such pages, Open passes it a file
// without LZ4_RAW, and unpacks the pages as they are read. Package parquet also panics on some
// damaged files; a deferred Recovered turns the panics into errors.
package parquetfile

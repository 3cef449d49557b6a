// Package preprocessed reads ready-made samples from Parquet files, for fine-tuning.
//
// Open opens the *.parquet files of a folder, in the natural order of their names, and
// returns a Dataset; Dataset.Read reads samples by their index; Close ends it. One row is
// one sample. The columns are lists of integers: inputs (or input_ids), which must be
// there, labels, position_ids and sequence_lengths, which may. A label stands at the place of
// its token, -100 where nothing is to be learned. Several texts may be packed into a sample:
// their lengths are sequence_lengths, or the positions begin anew with each. Other columns are
// not read.
//
// Files are checked, not trusted: a sample that is too long, a token outside the
// vocabulary, a page that holds more than it announces (package files/data/parquetfile, before a
// row group is read first) and whatever the Parquet library trips over are errors that
// name file and row.
package preprocessed

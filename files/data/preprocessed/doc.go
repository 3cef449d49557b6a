// Package preprocessed reads ready-made samples from Parquet files, for fine-tuning.
//
// Open opens the *.parquet files of a folder, in the natural order of their names, and returns a
// Dataset. Dataset.Read reads samples by index. Close ends it.
//
//	dataset, err := preprocessed.Open(dir, preprocessed.Options{SeqLen: 2048, VocabSize: 50257})
//	samples, err := dataset.Read(ctx, []uint64{0, 1})
//
// A row is a sample. The columns are lists of integers: inputs (or input_ids), which is required,
// and the optional labels, position_ids and sequence_lengths. A label has the index of its token,
// and is -100 if nothing is to be learned. Several texts may be packed into a sample: either
// sequence_lengths has their lengths, or the positions restart at 0 with each. The columns in maskNames
// select the tokens that are learned; attention_mask marks padding. Other columns are not read.
//
// Files are not trusted. These are errors that name the file and the row: a sample that is too
// long, a token outside the vocabulary, a page that unpacks to more than its announced size (checked
// by package files/data/parquetfile before a row group is first read), and failures of the Parquet
// library.
package preprocessed

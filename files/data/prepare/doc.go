// Package prepare makes folders of token files from text, and folders of samples from
// conversations.
//
// Run walks files and folders, extracts the texts of text, JSON, CSV, Parquet and Arrow files,
// encodes them, and writes the tokens as *.ds files for package files/data/local, with a data.json
// that describes them (a manifest.Manifest). It can hold out a part of the texts from training:
// their tokens go to heldout/heldout.ds, which readers of the folder ignore.
//
// One goroutine cuts the input into jobs of about 1 MiB, several encode jobs, and one writes the
// results in the order of the input. So the output does not depend on the number of goroutines. Run
// writes to a hidden folder first and moves the complete files into place. After every 32 MiB of
// input, a journal in that folder records the state of the files on the disk. A run that was killed
// continues from the last complete entry.
//
// Converse makes samples for fine-tuning from conversations, for package files/data/preprocessed.
package prepare

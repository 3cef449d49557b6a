// Package prepare makes folders of token files from text, and of samples from conversations.
//
// Run walks files and folders, takes the texts out of text, JSON, CSV, Parquet and Arrow files,
// encodes them and writes the tokens as *.ds files that package files/data/local reads, with
// data.json, a manifest.Manifest of what they hold. A part of the texts can be held out of
// training: its tokens go to heldout/heldout.ds, which readers of the folder do not see.
//
// One goroutine cuts the input into jobs of about 1 MiB, several encode them, one writes
// what they made in the order of the input, so that the outcome does not depend on their
// number. Everything is written to a hidden folder first and put in place when it is
// complete. A journal there says after every 32 MiB of input how far the files on the
// disk are; a run that was killed goes on from its last whole entry.
//
// Converse makes samples for fine-tuning, which package files/data/preprocessed reads, of conversations.
package prepare

// Package prepare makes folders of token files from text.
//
// Run walks files and folders, encodes every text file and writes the tokens as *.ds
// files that package data/local reads, with data.json, a Manifest of what they hold. A
// part of the files can be held out of training: its tokens go to heldout/heldout.ds,
// which readers of the folder do not see. Everything is written to a temporary folder
// first and put in place when it is complete.
package prepare

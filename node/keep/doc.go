// Package keep is what a client has on its disk of a run, and what it says of it: the
// checkpoint of each epoch, the state of its own optimizer, the newest step of which it signed a
// result, and where checkpoints were uploaded.
//
// A Folder names and reads the files; a Saver writes the model of an epoch once the run has
// agreed on it; Uploads holds the newest upload that the run does not know of yet.
package keep

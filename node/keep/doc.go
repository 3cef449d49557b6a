// Package keep manages a client's files of a run on disk: the checkpoint of each epoch, the
// optimizer state, the newest step with a result that the client signed, and the uploads of
// checkpoints that it reports to the run.
//
// A Folder names and reads the files. A Saver writes the model of an epoch once the run has agreed
// on it. Uploads contains the newest upload that the run does not know of yet.
package keep

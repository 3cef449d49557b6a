// Package tracker hands the rows of a metrics.Board to programs that people follow a training
// with: TensorBoard event files, a file of JSON lines; below it, Weights & Biases.
//
// A Feed stands between the board and a Sink: Take never waits, so that a disk that is full or
// a service that hangs costs the training nothing. Rows for which there is no room are
// dropped, and counted; a sink that fails gets the same rows again, later each time, until it
// takes them or says that it never will (ErrGivenUp).
package tracker

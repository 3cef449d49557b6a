// Package tracker sends the rows of a metrics.Board to experiment trackers: TensorBoard event files
// and JSON lines files. Package tracker/wandb adds Weights & Biases.
//
// A Feed connects the board to a Sink. Take never blocks, so that a full disk or an unresponsive
// service does not slow down training. Rows that do not fit the queue are dropped and counted. If a
// sink fails, the Feed retries the same rows, with growing pauses, until the sink accepts them or
// fails permanently (ErrGivenUp).
package tracker

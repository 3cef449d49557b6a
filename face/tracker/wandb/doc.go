// Package wandb hands rows to Weights & Biases. Online talks to its service, or to another
// server that speaks the same HTTP protocol; Offline writes the folder that the command `wandb
// sync` uploads later. Both are a tracker.Sink.
//
// Online begins the run with one GraphQL request and appends lines to its wandb-history.jsonl
// with one request for many rows. What is refused for good (a wrong key, a project that is not
// there) ends it with tracker.ErrGivenUp.
package wandb

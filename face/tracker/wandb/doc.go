// Package wandb sends rows to Weights & Biases. Online talks to its service, or to a different
// server with the same HTTP protocol. Offline writes the folder that the command `wandb sync`
// uploads later. Both are a tracker.Sink.
//
// Online starts the run with one GraphQL request, and appends lines to its wandb-history.jsonl with
// one request for many rows. A permanent refusal (a wrong key, a missing project) ends it with
// tracker.ErrGivenUp.
package wandb

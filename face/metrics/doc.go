// Package metrics converts the events of a process to metrics. A Board holds the newest value of
// each metric, and emits a Row for every step that the process trained and every task that it
// evaluated a model on. Handler serves a board as JSON and in Prometheus format.
//
// Metrics have the names that the original Psyche uses in its trackers: train/loss, train/lr,
// coordinator/epoch, optim/TENSOR.grad_energy, eval/TASK.
package metrics

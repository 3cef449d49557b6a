// Package metrics turns the events of a process into figures: a Board knows the newest value of
// each, and hands on a Row of them for every step that the process trained and every task that a
// model was measured in. Handler shows a board to programs, as JSON and to Prometheus.
//
// Figures have the names that the original gives its trackers: train/loss, train/lr,
// coordinator/epoch, optim/TENSOR.grad_energy, eval/TASK.
package metrics

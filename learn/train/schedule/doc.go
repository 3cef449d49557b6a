// Package schedule computes the learning rate of each step.
//
// New takes the schedule of a run's definition, and Schedule.LR returns the rate of a step. ColdStart
// scales the rate while a run warms up again after a reset of its optimizers.
//
// Every replica multiplies its weights by these numbers, so a step must give the same bits on every
// machine. Sums and products are rounded one by one, and the package has its own cosine instead of a
// library's.
package schedule

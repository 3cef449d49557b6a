// Package schedule says how large the learning rate is at each step.
//
// Every replica multiplies its weights by numbers that come from here, so the same step
// must give the same bits on every machine: sums and products are rounded one by one,
// and the cosine is the package's own, not a library's.
//
// New takes the schedule of a run's definition; Schedule.LR gives the rate of a step.
// ColdStart scales it while a run warms up again after its optimizers were reset.
package schedule

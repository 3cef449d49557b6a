// Package background measures a model in the moments in which its training does not need it.
//
// A Runner asks one question after the other of its exams. Whoever trains the model calls Busy
// before it touches it, which ends the question that is being asked (it is asked again later),
// and the function that Busy returns afterwards. When a task has been gone through, its scores
// are reported, and when all have been and the model has changed, they begin anew: while a model
// is trained, scores are means over answers of the models of a few steps. Complete measures one
// model alone, when its training is over.
package background

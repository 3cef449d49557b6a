// Package background measures a model while training does not use it.
//
// A Runner asks one question of its exams after the other. The trainer of the model calls Busy before it
// uses the model, which cancels the current question (it is asked again later), and afterwards calls the
// function that Busy returned. After the last question of a task, the Runner reports its scores. After all
// tasks, it starts again once the model has changed. So during training, scores are means over answers
// of the models of a few steps. Complete measures one model alone, after its training.
package background

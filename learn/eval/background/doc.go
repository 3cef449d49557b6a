// Package background measures a model while training does not use it.
//
// A Runner asks the questions of its exams one after the other. The trainer of the model calls Busy
// before it uses the model. Busy cancels the current question, which is asked again later. When the
// trainer no longer needs the model, it calls the function that Busy returned. After the last
// question of a task, the Runner reports the task's scores. After all tasks, it starts again once
// the model has changed. During training, a score is therefore a mean over answers of the models of
// a few steps. Complete measures one model alone, after its training.
package background

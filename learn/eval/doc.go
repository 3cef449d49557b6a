// Package eval measures what a language model knows, with the questions of public data sets.
//
// A Task says where the questions of a data set lie, how they are put, and how answers count.
// Library.Open reads the documents of one and makes an Exam of them: Question by Question, with
// its examples before it. Reader.Ask has an LM answer one, and a Tally adds the answers up:
//
//	exam, err := library.Open(ctx, task, eval.Options{Seed: 42})
//	for i := range exam.Len() {
//		question := exam.Question(i)
//		answer, err := reader.Ask(ctx, question)
//		tally.Add(question, answer)
//	}
//
// Prompts, examples and scores are those of EleutherAI's lm-evaluation-harness, document by
// document: acc counts the choice with the largest log-likelihood, acc_norm that with the largest
// one for each character. A choice is the continuation of the prompt after a space; whitespace
// at the end of a prompt belongs to the continuation. Examples are drawn as Python's random draws
// them.
//
// The package knows neither a network nor a device: what fetches data sets, and the model, are
// its caller's.
package eval

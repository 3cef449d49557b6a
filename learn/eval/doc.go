// Package eval measures the knowledge of a language model with the questions of public data sets.
//
// A Task defines the location of a data set's questions, their form, and the scoring of answers.
// Library.Open reads the documents of a Task and makes an Exam: a list of Questions, each with its
// examples before it. Reader.Ask lets an LM answer a question, and a Tally adds up the answers:
//
//	exam, err := library.Open(ctx, task, eval.Options{Seed: 42})
//	for i := range exam.Len() {
//		question := exam.Question(i)
//		answer, err := reader.Ask(ctx, question)
//		tally.Add(question, answer)
//	}
//
// Prompts, examples and scores match EleutherAI's lm-evaluation-harness, document by document.
// acc counts the choice with the largest log-likelihood; acc_norm counts the choice with the largest
// log-likelihood per character. A choice is the continuation of the prompt after a space. Whitespace at the
// end of a prompt belongs to the continuation. Examples are drawn as Python's random module draws them.
//
// The package uses neither a network nor a device: its callers provide the model, and the means to
// download data sets.
package eval

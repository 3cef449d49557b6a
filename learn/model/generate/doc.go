// Package generate continues texts with a model.
//
// [Tokens] passes the prompt through the model, draws one token after the other as [Options]
// define, and passes each token to its caller immediately. The same model, prompt and options give
// the same tokens on the same machine. [Together] writes several texts at once, each as if it were
// alone, except for the last bits of sums, which depend on the number of texts.
package generate

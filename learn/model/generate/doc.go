// Package generate lets a model write on.
//
// [Tokens] feeds the prompt through the model, draws one token after the other as [Options]
// say, and hands each to its caller at once. The same model, prompt and options give the
// same tokens on the same machine. [Together] writes several texts at once, each as if it
// were alone, but for the last bits of sums, which depend on how many texts there are.
package generate

// Package generate lets a model write on.
//
// [Tokens] is the only function: it feeds the prompt through the model, draws one token
// after the other as [Options] say, and hands each to its caller at once. The same model,
// prompt and options give the same tokens on the same machine.
package generate

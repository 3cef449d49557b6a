// Package weights moves a model's parameters between checkpoints and libtorch, and makes
// initial ones.
//
// The main type is [Source]: a model takes its parameters from it by name and shape, and
// [Source.Close] complains of tensors that nobody took. [Export] is the way back, [Copy]
// overwrites the parameters of a model that exists. Both want a model's own tensors;
// [Without] and [WithoutTied] help to make these of a published checkpoint's. [Normal] and [Ones] make initial values, the same bits on every machine.
package weights

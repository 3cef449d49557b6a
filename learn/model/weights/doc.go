// Package weights moves a model's parameters between checkpoints and libtorch, and makes initial
// parameters.
//
// The main type is [Source]. A model takes its parameters from a Source by name and shape;
// [Source.Close] reports tensors that the model did not take. [Export] returns the tensors of a model,
// and [Copy] overwrites the parameters of an existing model. Both work with exactly the tensors of the
// model; [WithoutBuffers] and [WithoutTied] help to get these from a published checkpoint. [Normal] and
// [Ones] make initial values, with the same bits on every machine.
package weights

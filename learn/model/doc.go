// Package model creates language models of the architecture in their config.json.
//
// The main type is [Model]. The order of calls is [Init] for new weights or a checkpoint's, [New]
// on an engine, then inside the engine's Do Loss and Backward, or Forward. [Export] reads the
// weights of an existing model, and [SetWeights] replaces them. File registry.go lists the
// supported architectures.
package model

// Package model makes models of the architecture that their config.json names.
//
// The main type is [Model]. The order of calls is [Init] for new weights or a
// checkpoint's, [New] on an engine, then inside the engine's Do Loss and Backward, or
// Forward. [Export] and [SetWeights] move weights out of and into an existing model.
// File registry.go lists the supported architectures.
package model

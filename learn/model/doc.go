// Package model makes models by the architecture that their config.json names.
//
// The main type is [Model]. The order of calls is [Init] for new weights or a
// checkpoint's, [New] on an engine, then inside the engine's Do Loss and Backward, or
// Forward. [Export] and [SetWeights] move weights out of and into a model that exists.
// Supported architectures are listed in registry.go.
package model

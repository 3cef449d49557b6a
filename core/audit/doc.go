// Package audit verifies a trainer's result of a step by means of a few chunks of its momentum.
//
// In the header of each result a trainer commits to its momentum after the step: the header
// contains the Merkle root over the chunks of all tensors (Leaf, package merkle). A step of a chunk
// is public arithmetic,
//
//	δ′ = βⁿ·δ(t−n) + η·g,  the largest coefficients of DCT(δ′) are sent,  δ(t) = δ′ without them,
//
// t−n is the step of the trainer's previous attested result. The chunks of δ(t−n) and δ(t)
// therefore determine the gradient that the trainer claims, and the auditor compares it with a
// gradient that it computed itself. Gradients on different hardware differ in their last bits, so
// the comparison has tolerances. All other checks need no gradient, only the opened values, and
// tolerate only rounding.
//
// Order of calls:
//
//	chunks := Chunks(seed, step, trainer, shapes, DefaultChunks, lowSupport) // when the step's audit seed is known
//	opening, err := DecodeOpening(bytes, shapes)                     // from the trainer, or from any member
//	claim.Binds(shapes, chunks)                                      // whether its trainer committed to it
//	report := (&Reference{…}).Check(claim)                           // without Updates: the checks without a gradient
//	report := reference.Check(claim)                                 // numbers for each chunk
//	outcome := report.Judge(limits)
//
// The package is pure arithmetic: it uses no clock, no network and no libtorch. docs/audit.md has
// measurements, and describes what an audit cannot find.
package audit

// Package audit checks what a trainer sends of a step, from a few chunks of its momentum.
//
// With each result a trainer commits to its momentum after the step: the Merkle root over
// the chunks of all tensors (Leaf, package merkle), in the header of the result. A step of a
// chunk is public arithmetic,
//
//	δ′ = βⁿ·δ(t−n) + η·g,  the largest coefficients of DCT(δ′) are sent,  δ(t) = δ′ less those,
//
// where t−n is the step of the trainer's newest result that others hold. So the chunks of δ(t−n)
// and δ(t) say which gradient the trainer claims, and that one is compared with the auditor's
// own. Gradients on other hardware have other bits: they are compared within tolerances; all else
// follows from what was opened, up to rounding, and takes no gradient to check.
//
// Order of calls:
//
//	chunks := Chunks(seed, step, trainer, shapes, DefaultChunks, lonely) // when the step's audit seed is known
//	opening, err := DecodeOpening(bytes, shapes)                     // what the trainer opens; anybody may have it
//	claim.Binds(shapes, chunks)                                      // whether its trainer committed to it
//	report := (&Reference{…}).Check(claim)                           // without Updates: what takes no gradient
//	report := reference.Check(claim)                                 // numbers for each chunk
//	outcome := report.Judge(limits)
//
// The package is arithmetic on values: it reads no clock, knows no network and no libtorch.
// What is measured of it, and what it cannot find, is in docs/audit.md.
package audit

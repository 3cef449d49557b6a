// Package audit checks what a trainer sends of a step, from a few chunks of its momentum.
//
// With each result a trainer commits to its momentum after the step: the Merkle root over
// the chunks of all tensors (Leaf, package merkle), in the header of the result. A step of a
// chunk is public arithmetic,
//
//	δ′ = β·δ(t−1) + η·g,  the largest coefficients of DCT(δ′) are sent,  δ(t) = δ′ less those,
//
// and what was sent in vain is given back. So the chunks of δ(t−1) and δ(t) say which
// gradient the trainer claims, and that one is compared with the verifier's own. Gradients on
// other hardware have other bits: they are compared within tolerances; all else follows from
// what was opened, up to rounding.
//
// Order of calls:
//
//	chunks := Chunks(seed, step, trainer, shapes, DefaultChunks) // when the next round's seed is known
//	exam := …                                                // the verifier's gradient of these chunks
//	prints := exam.Prints(PrintSeed(seed, verifier))         // committed to before anything is opened
//	opening, err := DecodeOpening(bytes, shapes)             // what the trainer opens
//	report := exam.Check(claim)                              // numbers for each chunk
//	outcome := report.Judge(limits)
//
// The package is arithmetic on values: it reads no clock, knows no network and no libtorch.
// What is measured of it, and what it cannot find, is in docs/audit.md.
package audit

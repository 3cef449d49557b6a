// Package evidence implements evidence files. An evidence file contains the data on which a member based
// an accusation of a wrong result, so that anyone can examine it again.
//
//	shapes, err := evidence.Shapes(tensors, rules)          // from the examiner's copy of the model
//	e, err := evidence.Decode(bytes)
//	finding, err := e.Examine(run, shapes, rules)          // an error: the evidence file proves nothing
//
// An evidence file contains three parts:
//
//   - the announcement, signed by the accused for the run, which contains the hash of the result;
//   - the bytes of the result, whose header contains the root of the accused's momentum;
//   - the opening, which that root determines uniquely.
//
// Therefore the accuser cannot forge any part. If the opening breaks the rules by itself, the file
// proves the fault. If only the gradient shows that a result is wrong, the file only proves what
// was opened. In that case the jurors have recomputed the gradient.
package evidence

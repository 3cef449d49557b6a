// Package exhibit is what an accusation rests on, as a file: what a member had before it when it accused
// another one of a wrong result, so that anybody can look at it again.
//
//	shapes, err := exhibit.Shapes(tensors, rules)          // of the examiner's own copy of the model
//	e, err := exhibit.Decode(bytes)
//	finding, err := e.Examine(run, shapes, rules)          // an error: it shows nothing of anybody
//
// It holds the announcement, which the accused signed for the run and which names the bytes of the result
// by their hash; those bytes, whose header names the root of the accused's momentum; and the opening, of
// which that root leaves no choice. So nothing in it can be made up by who accuses, and what the opening
// breaks of the rules by itself is proven by the file. Where only the gradient shows that a result is
// wrong, the file proves what was opened, and the jurors are those that computed it again.
package exhibit

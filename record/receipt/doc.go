// Package receipt is what a run's log says that one member gave to it, as a file that anybody with the log
// can verify.
//
//	book := receipt.NewBook(member)
//	book.See(entry, state) // every entry of the log, and the state after it
//	r := book.Receipt()
//	r, err := receipt.Decode(r.Encode())
//	err = r.Verify(other)          // of a Book of the same member that saw the log up to r.Entries
//
// A receipt says up to which entry of which log it counts, by the hash of that entry: who verifies it does
// again what every record up to there did, and comes to the same figures or says that it does not. Nobody has
// to sign it, and nothing in it is the member's own word.
package receipt

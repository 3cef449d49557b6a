// Package receipt implements receipts: files that summarize the contributions of one member to a
// run, and that can be verified against the run's log.
//
//	book := receipt.NewBook(member)
//	book.See(entry, state) // every entry of the log, and the state after it
//	r := book.Receipt()
//	r, err := receipt.Decode(r.Encode())
//	err = r.Verify(other)          // other: from a Book of the same member with the log up to r.Entries
//
// A receipt names the last counted entry of the log by the hash of that entry. A verifier executes
// every record up to that entry, and either gets the same numbers or rejects the receipt. A receipt
// needs no signature, and nothing in it depends on the member's word.
package receipt

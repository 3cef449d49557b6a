// Package journal implements an append-only file of byte entries, in which every entry contains the
// hash of the previous one and therefore commits to all of them.
//
// The main type is Journal. Open reads and verifies the existing entries and passes every payload
// to a callback. Append collects entries in memory, and Commit writes and syncs them: after Commit
// returns, they survive a kill or a power cut. Read reads a file that is not being written.
//
//	file  = magic, entries
//	entry = length of the payload (4 bytes, big endian)
//	        hash of the previous entry (32 bytes; zero for the first)
//	        check: first 4 bytes of SHA-256 of the 36 bytes before
//	        payload
//	        hash: SHA-256 of everything before in this entry (32 bytes)
//
// A process that dies while it writes leaves a strict prefix of the data, and a machine that loses
// power may leave zeros at the end of the grown file. Open recognises such a torn tail and removes it,
// because it was never acknowledged. Any other mismatch is damage: Open refuses the file and reports
// the offset of the first bad entry. The check over the header distinguishes a torn payload from a
// damaged length, which would otherwise hide all later entries. Repair removes damage that extends to
// the end of the file. It never runs automatically, only at a user's request.
package journal

// Package journal is an append-only file of byte entries in which every entry commits to
// all before it.
//
// The main type is Journal. Open reads and checks what is there and hands every payload
// to a callback, then Append collects entries in memory and Commit writes and syncs them:
// after Commit returns they survive a kill or a power cut. Read does the reading half for
// a file that nobody writes to.
//
//	file  = magic, entries
//	entry = length of the payload (4 bytes, big endian)
//	        hash of the previous entry (32 bytes; zero for the first)
//	        check: first 4 bytes of SHA-256 of the 36 bytes before
//	        payload
//	        hash: SHA-256 of everything before in this entry (32 bytes)
//
// A process that dies while it writes leaves a strict prefix of what it wrote, and a machine that
// loses power may leave zeros where the file had grown already. Such a torn tail is recognised and
// cut: what is in it was never acknowledged. Everything else that does not fit is damage, refused
// with the offset of the first bad entry: the check over the header tells a torn payload from a
// damaged length, which would otherwise swallow all entries behind it. Repair cuts damage off that
// reaches to the end of the file, when a person has decided so.
package journal

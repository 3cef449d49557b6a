// Package filelock keeps the processes of a machine out of each other's files and folders. A
// lock is of one process, advises only those who ask for it as well, and ends with the process,
// however that ends: nothing that a killed process left has to be cleaned up.
//
// Open and OpenFolder make what is to be locked and lock it, Wait waits for its turn, and Try
// locks what is open already. Whoever cannot have a lock gets ErrHeld, and says in its own words
// what to do about that. The lock lasts until the file is closed.
//
// The holder of a lock may remove or rename the file: then the lock is worth nothing to those that
// come after, and a process that had opened the file before must not believe that it has the lock. Open,
// OpenFolder and Wait see to that; after Try, IsAt tells.
//
// On systems without such locks (Supported is false) everybody gets one.
package filelock

// Package filelock implements advisory locks on files and folders between the processes of a
// machine. A lock affects only processes that also use locks. The system releases it when its
// process ends, for whatever reason, so a killed process leaves nothing to clean up.
//
// Open and OpenFolder create a file or folder if necessary and lock it. Wait waits until the lock
// is free, and Try locks an open file. If a lock is taken, they return ErrHeld, without advice: the
// caller adds its own. A lock lasts until its file is closed.
//
// The holder of a lock may remove or rename the file. Then the lock no longer excludes other
// processes, and a process that opened the file before must not assume that it has a valid lock.
// Open, OpenFolder and Wait check this. After Try, the caller checks it with IsAt.
//
// On systems without such locks (Supported is false), every lock succeeds.
//
// The package does not use github.com/gofrs/flock (version 0.13.2). flock opens the file itself and
// does not return the open file. Callers of this package read and write the file that they locked, or
// lock a file that is already open (Try), so with flock they would have to open every file twice. flock
// would replace only the two functions named try, 20 lines together. It also does not repeat a system
// call that a signal interrupted.
package filelock

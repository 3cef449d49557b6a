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
package filelock

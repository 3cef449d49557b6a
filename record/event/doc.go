// Package event implements the event log of a process: its actions and measurements, one JSON
// object on each line, append-only.
//
// A process opens a Log with Open, which locks it, and calls Append with one of the structs of
// kinds.go. A nil *Log discards all events, so callers need no condition. Programs that display
// a run (a testnet, its display and its summary) are projections of the log: they read the file
// with Read or watch it with Follow, and keep no other state.
//
// A line contains "time" (RFC 3339, UTC), "kind", and then the fields of the struct:
//
//	{"time":"2026-01-02T15:04:05.678Z","kind":"trained","step":3,"batch":[8,12],"loss":5.2,"tokens":1024,"seconds":0.41}
//
// A line is written by one system call and is at most maxLine bytes long. A process that is killed
// while writing leaves a torn last line. Readers ignore it, and Open removes it. Anything else that
// is not an event of this format is an error that names file and line. New fields and kinds may be
// added: a reader skips unknown fields, and returns events of unknown kinds unchanged.
package event

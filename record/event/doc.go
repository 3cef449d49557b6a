// Package event is the typed event log of a process: what it did and measured, one
// JSON object per line, appended and never rewritten.
//
// A process opens a Log with Open and calls Append with one of the structs of
// kinds.go; a nil *Log swallows everything, so that code that reports needs no
// condition. Programs that show a run (a testnet, its display and its summary) are
// projections: they read the file with Read or watch it with Follow and keep no
// other truth.
//
// A line carries the fields of its struct after "time" (RFC 3339, UTC) and "kind":
//
//	{"time":"2026-01-02T15:04:05.678Z","kind":"trained","step":3,"batch":[8,12],"loss":5.2,"tokens":1024,"seconds":0.41}
//
// A line is written by one system call and is at most maxLine bytes long. A process
// that was killed while writing leaves a torn last line: readers ignore it and Open
// cuts it off. Everything else that is not an event of this format is an error that
// names file and line. Fields and kinds may be added; a reader skips fields that it
// does not know and hands unknown kinds on as Unknown.
package event

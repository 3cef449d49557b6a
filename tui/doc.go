// Package tui shows the progress of a run in a terminal.
//
// New starts a display below the cursor; Update hands it what is known, Close leaves the
// last picture standing. The display only reads: Ctrl-C is handed to the function given
// to New, because in raw mode a terminal sends no signal.
package tui

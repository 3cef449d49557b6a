// Package tui draws clients, servers and local networks in a terminal.
//
// A Client and a Server follow event logs, a Testnet is told what is known; Start and New begin to draw
// on a screen of its own, Close gives the terminal back. Nobody who tells a display something waits
// for the terminal. Displays only read, except for the server's key that pauses a run. Ctrl-C is
// handed on, because in raw mode a terminal sends no signal. What comes from others is drawn without
// what could move the cursor or colour the screen.
package tui

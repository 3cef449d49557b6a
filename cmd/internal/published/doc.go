// Package published is what both programs need to take command lines as the documentation of
// the original prints them: switches with a value behind them (Switches), flags that also read
// the environment (Environment), programs under other names (Arguments) and the pages of a
// manual made from the commands (Manual).
//
// docs/command-lines.md lists all of them; tests of both programs go through that table.
package published

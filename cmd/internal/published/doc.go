// Package published makes both programs accept the command lines in the documentation of the original
// Psyche: switches with a separate value (Switches), flags that also read the environment
// (Environment), the program names of the original (Arguments), and a generated manual (Manual).
//
// docs/command-lines.md lists all of these command lines. Tests of both programs check the list.
package published

// Package manual generates a man page (Man), and completions for bash, zsh and fish (Completion),
// from the same definitions as the program's --help.
package manual

// Package manual makes what is installed beside a program of the same definitions that its --help is
// made of: a man page (Man), and completions for bash, zsh and fish (Completion).
package manual

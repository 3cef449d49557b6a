// Package manual generates a man page (Man), and completions for bash, zsh and fish (Completion),
// from the same definitions as the program's --help.
//
// The package does not use github.com/alecthomas/mango-kong (version 0.1.0). Its page of psyche has
// no texts of arguments, no titles of flag groups and no environment variables. It lists hidden
// flags (140 of 670 entries), changes the order of flags, and contains the current date, so builds
// are not reproducible. groff reports 66 warnings, against 0 for the page of this package.
//
// The package does not use github.com/willabides/kongplete (version 0.4.0) either. Its completions have
// no --no-FLAG, no descriptions in zsh and fish, and complete file names only for flags with a special
// tag. They start the program at each Tab. It writes a script only for the login shell of the user,
// with the path of the running program, so a package cannot install the scripts of all three shells.
package manual

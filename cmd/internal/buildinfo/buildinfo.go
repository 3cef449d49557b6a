// Package buildinfo reports the version from which a program was built.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// commit is the commit from which the program was built, if go build cannot determine it: in a git
// worktree, or from a source archive. The Makefile sets it.
var commit string

// Line returns one line with the program's name, version, commit, Go version and platform.
func Line(program string) string {
	module, revision, modified := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = cmp.Or(info.Main.Version, module)
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = " " + setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = " (modified)"
			}
		}
	}
	if revision == "" && commit != "" {
		revision = " " + commit
	}
	return fmt.Sprintf("%s %s%s%s %s %s/%s", program, module, revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Help converts a command line that starts with the word "help" to a command line that ends with
// the flag --help: "help run status" becomes "run status --help".
func Help(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(append([]string(nil), args[1:]...), "--help")
}

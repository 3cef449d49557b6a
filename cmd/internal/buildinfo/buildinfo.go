// Package buildinfo says what a program was built from.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// commit is what the program was built from, where go build does not find that out itself: in a worktree of git,
// or from an archive of the sources. The Makefile sets it.
var commit string

// Line is one line with the program's name, version, commit, Go version and platform.
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

// Help returns a command line in which a first word "help" is the flag --help behind the rest, as in
// "help run status".
func Help(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(append([]string(nil), args[1:]...), "--help")
}

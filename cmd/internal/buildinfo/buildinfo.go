// Package buildinfo says what a program was built from.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

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
	return fmt.Sprintf("%s %s%s%s %s %s/%s", program, module, revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

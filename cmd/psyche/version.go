package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

type version struct{}

// Run prints the version, the commit and the Go version that the program was built from.
func (version) Run(to console) error {
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
	_, err := fmt.Fprintf(to.out, "psyche %s%s%s %s %s/%s\n", module, revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand prints what the program was built from.
type versionCommand struct{}

// Run prints the version, the commit and the Go version that the program was built from.
func (*versionCommand) Run(t terminal) error {
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
	_, err := fmt.Fprintf(t.Out, "psyche-client %s%s%s %s %s/%s\n", module, revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

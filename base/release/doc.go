// Package release compares the version of a program with the version that the host of a run requires.
//
//	err := release.Requirement{Version: "0.2.0"}.Admit(buildinfo.Version())
package release

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// errSetting means that the installer cannot contain a value, or lacks the line for it.
var errSetting = errors.New("cannot set in the installer")

// quotable matches values that a shell keeps unchanged between single quotes.
var quotable = regexp.MustCompile(`^[A-Za-z0-9:/.,=+_~%@-]*$`)

// setting is a value that the release sets in scripts/install.sh.
type setting struct{ name, value string }

// installer returns scripts/install.sh with the values of a release. It sets each NAME that the
// script sets to an empty string.
func installer(script string, settings []setting) (string, error) {
	for _, s := range settings {
		if !quotable.MatchString(s.value) {
			return "", fmt.Errorf("%w: %s: %q has characters that a shell could interpret", errSetting, s.name, s.value)
		}
		line := "\n" + s.name + "=''\n"
		if strings.Count(script, line) != 1 {
			return "", fmt.Errorf("%w: %s; want exactly one line %s='' in scripts/install.sh", errSetting, s.name, s.name)
		}
		script = strings.Replace(script, line, "\n"+s.name+"='"+s.value+"'\n", 1)
	}
	return script, nil
}

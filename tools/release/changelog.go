package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	errNoEntry = errors.New("no entry in CHANGELOG.md")
	errNoDate  = errors.New("the entry in CHANGELOG.md has no date")
)

// heading matches the heading of a version: ## [0.1.0] - 2026-12-01.
var heading = regexp.MustCompile(`(?m)^## \[([^\]]+)\](?: - (.*))?$`)

// released matches the date of a release.
var released = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// entryOf returns the text below the heading of a version, and the date in the heading.
func entryOf(changelog, version string) (text, date string, err error) {
	all := heading.FindAllStringSubmatchIndex(changelog, -1)
	for i, at := range all {
		if changelog[at[2]:at[3]] != version {
			continue
		}
		end := len(changelog)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if at[4] >= 0 {
			date = strings.TrimSpace(changelog[at[4]:at[5]])
		}
		if text = strings.TrimSpace(changelog[at[1]:end]); text != "" {
			return text, date, nil
		}
	}
	return "", "", fmt.Errorf("%w for %s; add a heading ## [%s] - DATE with the changes below it", errNoEntry, version, version)
}

// releasedEntry returns the text of a version whose heading has a date.
func releasedEntry(changelog, version string) (string, error) {
	text, date, err := entryOf(changelog, version)
	if err != nil {
		return "", err
	}
	if !released.MatchString(date) {
		return "", fmt.Errorf("%w: %s has %q; write the day of the release, such as 2026-12-01", errNoDate, version, date)
	}
	return text, nil
}

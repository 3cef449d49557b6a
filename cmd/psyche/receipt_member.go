package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// leastPrefix is the minimum length of the beginning of a key that selects a member.
const leastPrefix = 4

// member returns the key of the member that --member selects: by its key, by the beginning of its key, or by its newest
// display name. Names are not unique, so an ambiguous one is an error.
func (c *runReceipt) member(to io.Writer) (identity.ID, error) {
	id, wrong := identity.ParseID(c.Member)
	if wrong == nil {
		return id, nil
	}
	names := map[identity.ID]string{}
	_, err := readLog(c.File, to, func(e logEntry, _ *coordinator.State) {
		if join, is := e.Action.(coordinator.Join); is {
			names[identity.ID(e.Actor)] = wire.NameOf(join)
		}
	})
	if err != nil {
		return id, err
	}
	return memberCalled(c.Member, names)
}

// memberCalled returns the key among names that has the display name text, or begins with text.
func memberCalled(text string, names map[identity.ID]string) (id identity.ID, err error) {
	var found []string
	for key, name := range names {
		if name == text || len(text) >= leastPrefix && strings.HasPrefix(key.String(), text) {
			id = key
			found = append(found, called(key.String(), name))
		}
	}
	switch slices.Sort(found); len(found) {
	case 0:
		return id, usagef("--member %q: no member in the log has this display name, this key, or a key that begins with it (%d characters or more); the members are %s",
			text, leastPrefix, listed(names))
	case 1:
		return id, nil
	}
	return id, usagef("--member %q: %d members fit: %s; give the key", text, len(found), strings.Join(found, ", "))
}

// called returns a key with its display name.
func called(key, name string) string {
	if name == "" {
		return key
	}
	return fmt.Sprintf("%s (%q)", key, name)
}

// listed names members, at most a few.
func listed(names map[identity.ID]string) string {
	const shown = 8
	var all []string
	for key, name := range names {
		all = append(all, called(key.Short(), name))
	}
	slices.Sort(all)
	if more := len(all) - shown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), more)
	}
	return strings.Join(all, ", ")
}

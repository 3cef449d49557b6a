package manual

import (
	"slices"

	"github.com/alecthomas/kong"
)

// Group is the flags that help shows under one title.
type Group struct {
	Title string // empty: flags without a title
	Flags []*kong.Flag
}

// Groups returns the visible flags of a command: first those without a title, then the other groups
// in the order in which their titles first appear.
func Groups(node *kong.Node) []Group {
	groups := []Group{{}}
	for _, flag := range node.Flags {
		if flag.Hidden {
			continue
		}
		title := ""
		if flag.Group != nil {
			title = flag.Group.Title
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Title == title })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Title: title})
		}
		groups[i].Flags = append(groups[i].Flags, flag)
	}
	if len(groups[0].Flags) == 0 {
		groups = groups[1:]
	}
	return groups
}

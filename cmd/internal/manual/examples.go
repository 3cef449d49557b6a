package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Examples are command lines that show how to use commands, without the program's name. The help of
// a command shows the examples that start with its name. The man page shows all.
type Examples []string

// Option adds the examples to the commands' help.
func (e Examples) Option() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		shown := make(map[*kong.Node]bool)
		for _, example := range e {
			command := find(k.Model.Node, strings.Fields(example))
			if command == nil {
				return fmt.Errorf("the example %q matches no command", example)
			}
			if !shown[command] {
				shown[command] = true
				command.Detail = strings.TrimPrefix(command.Detail+"\n\nExamples:\n", "\n\n")
			}
			command.Detail += "\n    " + k.Model.Name + " " + example
		}
		return nil
	})
}

// find returns the command at the start of words, or nil.
func find(node *kong.Node, words []string) *kong.Node {
	for _, child := range node.Children {
		if len(words) == 0 || child.Type != kong.CommandNode || child.Name != words[0] {
			continue
		}
		if len(child.Children) == 0 {
			return child
		}
		return find(child, words[1:])
	}
	return nil
}

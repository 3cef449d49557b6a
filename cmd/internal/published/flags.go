package published

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Switches makes a parser accept true or false after a switch as its value: --tui false is
// --tui=false. Other words after a switch are not its value.
func Switches() kong.Option { return kong.KindMapper(reflect.Bool, switches{}) }

type switches struct{}

// IsBool implements kong.BoolMapper.
func (switches) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (switches) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	next := ctx.Scan.Peek()
	text := strings.ToLower(next.String())
	behind := next.Type == kong.UntypedToken && (text == "true" || text == "false")
	if next.Type != kong.FlagValueToken && !behind {
		target.SetBool(true)
		return nil
	}
	switch ctx.Scan.Pop(); text {
	case "true", "1", "yes":
		target.SetBool(true)
	case "false", "0", "no", "":
		target.SetBool(false)
	default:
		return fmt.Errorf("want true or false, not %q", next.String())
	}
	return nil
}

// Environment makes flags of a command also read environment variables: the flag --some-name reads
// SOME_NAME. It leaves flags that already have a variable unchanged.
func Environment(command string, flags ...string) kong.Option {
	return kong.PostBuild(func(parser *kong.Kong) error {
		for _, node := range parser.Model.Children {
			if node.Name == command {
				return readEnvironment(node, flags)
			}
		}
		return fmt.Errorf("there is no command %s", command)
	})
}

func readEnvironment(node *kong.Node, flags []string) error {
	left := make(map[string]bool, len(flags))
	for _, name := range flags {
		left[name] = true
	}
	for _, flag := range node.Flags {
		if left[flag.Name] && len(flag.Envs) == 0 {
			name := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
		}
		delete(left, flag.Name)
	}
	for name := range left {
		return fmt.Errorf("%s has no flag --%s", node.Name, name)
	}
	return nil
}

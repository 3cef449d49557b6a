package manual

import (
	"errors"

	"github.com/alecthomas/kong"
)

// hint suggests the --help for a command line that could not be parsed. It suggests the help of the
// most specific command that the line names.
func hint(program string, err error) string {
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil || wrong.Context.Selected() == nil {
		return program + " --help"
	}
	command := wrong.Context.Selected()
	if command.Type == kong.ArgumentNode {
		command = command.Parent
	}
	return command.FullPath() + " --help"
}

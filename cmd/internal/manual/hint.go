package manual

import (
	"errors"

	"github.com/alecthomas/kong"
)

// Hint returns which help of a program has what a command line lacks that was not understood: that of the command
// which it names, as far as it names one.
func Hint(program string, err error) string {
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

// Package paths parses names of files and folders, and other texts, of a command line without
// changing their bytes. It also finds the user's folder for the state of the programs.
package paths

import (
	"errors"
	"reflect"

	"github.com/alecthomas/kong"
)

// types are the type names of flags for files and folders.
var types = []string{"path", "existingfile", "existingdir"}

// errEmpty means that a name is empty, for example because a shell variable was empty. An empty
// name would mean the working directory.
var errEmpty = errors.New(`want a file or folder name, not ""; or omit the flag`)

// Option makes a parser reject empty names, and keep bytes that are not UTF-8. An empty environment
// variable and --flag= are not errors: they mean that the flag is not set.
func Option() kong.Option {
	return kong.OptionFunc(func(parser *kong.Kong) error {
		standard := kong.NewRegistry().RegisterDefaults()
		for _, name := range types {
			usual := exactly(standard.ForNamedType(name, reflect.TypeFor[string]()), place(name))
			mapper := kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
				switch value := ctx.Scan.Peek(); {
				case value.Value != "" || target.Kind() == reflect.Slice:
					return usual.Decode(ctx, target)
				case value.Type == kong.FlagValueToken:
					ctx.Scan.Pop()
					target.SetZero()
					return nil
				}
				return errEmpty
			})
			if err := kong.NamedMapper(name, mapper).Apply(parser); err != nil {
				return err
			}
		}
		for _, option := range texts(standard) {
			if err := option.Apply(parser); err != nil {
				return err
			}
		}
		return nil
	})
}

// Package paths reads the names of files and folders of a command line, and its other texts, byte by byte.
package paths

import (
	"errors"
	"reflect"

	"github.com/alecthomas/kong"
)

// types are those of flags that name files and folders.
var types = []string{"path", "existingfile", "existingdir"}

// errEmpty says that a shell put nothing where a name belongs: it would be taken for the present folder.
var errEmpty = errors.New(`want a file or folder name, not ""; or omit the flag`)

// Option makes a parser refuse an empty name, and keep bytes that are not UTF-8. An empty variable of the environment,
// and --flag=, count as no name.
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

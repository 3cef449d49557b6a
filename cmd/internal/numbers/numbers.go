// Package numbers parses the numbers of a command line.
package numbers

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Option makes a parser read the -1 after a flag as a number instead of a flag, and report the
// expected numbers for an invalid value.
func Option() kong.Option {
	standard := kong.NewRegistry().RegisterDefaults()
	mapper := kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		value := ctx.Scan.Peek()
		if negative(value) {
			value = ctx.Scan.Pop()
			value.Type = kong.FlagValueToken
			ctx.Scan.PushToken(value)
		}
		err := standard.ForType(target.Type()).Decode(ctx, target)
		if err != nil && value.IsValue() {
			return fmt.Errorf("want %s, not %q", wanted(target.Type()), value.String())
		}
		return err
	})
	return kong.OptionFunc(func(parser *kong.Kong) error {
		options := []kong.Option{kong.TypeMapper(reflect.TypeFor[time.Duration](), mapper)}
		for kind := reflect.Int; kind <= reflect.Float64; kind++ {
			if kind != reflect.Uintptr {
				options = append(options, kong.KindMapper(kind, mapper))
			}
		}
		for _, option := range options {
			if err := option.Apply(parser); err != nil {
				return err
			}
		}
		return nil
	})
}

// negative reports whether an untyped token starts like a negative number.
func negative(t kong.Token) bool {
	rest, minus := strings.CutPrefix(t.String(), "-")
	return t.Type == kong.UntypedToken && minus && rest != "" && (rest[0] == '.' || rest[0] >= '0' && rest[0] <= '9')
}

// wanted describes the numbers that a type can hold.
func wanted(t reflect.Type) string {
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s or 5m"
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case kind >= reflect.Int && kind <= reflect.Int64:
		return "a whole number"
	}
	return "a number"
}

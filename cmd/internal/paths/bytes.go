package paths

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// Kong passes texts through JSON, which replaces bytes that are not UTF-8. The mappers of this file
// keep the bytes of such texts, and leave all other texts to kong.

// keepsBytes reports whether kong keeps the bytes of a token.
func keepsBytes(token kong.Token) bool {
	text, isText := token.Value.(string)
	return !isText || utf8.ValidString(text)
}

// texts makes a parser keep the bytes of texts, and of lists of texts, that are not file names.
func texts(standard *kong.Registry) []kong.Option {
	text, list := reflect.TypeFor[string](), reflect.TypeFor[[]string]()
	same := func(text string) (string, error) { return text, nil }
	return []kong.Option{
		kong.KindMapper(reflect.String, exactly(standard.ForType(text), same)),
		kong.TypeMapper(list, exactly(standard.ForType(list), same)),
	}
}

// exactly returns a mapper that decodes a token with read if usual would change its bytes, and with
// usual otherwise.
func exactly(usual kong.Mapper, read func(text string) (string, error)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		if target.Kind() == reflect.Slice {
			return exactList(ctx, target, usual, read)
		}
		if token := ctx.Scan.Peek(); !token.IsValue() || keepsBytes(token) {
			return usual.Decode(ctx, target)
		}
		text, err := read(ctx.Scan.Pop().String())
		if err == nil {
			target.SetString(text)
		}
		return err
	})
}

// exactList does the same as exactly for a list: the value of a flag, or all following arguments.
func exactList(ctx *kong.DecodeContext, target reflect.Value, usual kong.Mapper, read func(text string) (string, error)) error {
	var tokens []kong.Token
	if ctx.Value.Flag == nil {
		tokens = ctx.Scan.PopWhile(func(t kong.Token) bool { return t.IsValue() })
	} else if t := ctx.Scan.Peek(); t.IsValue() {
		tokens = []kong.Token{ctx.Scan.Pop()}
	}
	if !slices.ContainsFunc(tokens, func(t kong.Token) bool { return !keepsBytes(t) }) {
		for _, token := range slices.Backward(tokens) {
			ctx.Scan.PushToken(token)
		}
		return usual.Decode(ctx, target)
	}
	if ctx.Value.Flag != nil && ctx.Value.Tag.Sep != -1 {
		return fmt.Errorf("%q is not UTF-8; a list needs UTF-8 names", tokens[0].String())
	}
	for _, token := range tokens {
		text, err := read(token.String())
		if err != nil {
			return err
		}
		target.Set(reflect.Append(target, reflect.ValueOf(text).Convert(target.Type().Elem())))
	}
	return nil
}

// place returns the function that parses the name of a file or folder, for flags of the given kind (see
// types).
func place(kind string) func(text string) (string, error) {
	return func(text string) (string, error) {
		path := kong.ExpandPath(text)
		if kind == "path" {
			return path, nil
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", err
		case info.IsDir() != (kind == "existingdir"):
			return "", fmt.Errorf("%q: %w", path, errKind[kind])
		}
		return path, nil
	}
}

// errKind contains the error for a path of the wrong kind.
var errKind = map[string]error{"existingfile": errors.New("exists but is a directory"), "existingdir": errors.New("exists but is not a directory")}

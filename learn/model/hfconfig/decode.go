package hfconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// Decode decodes a config.json. If a value does not have the type of its field, the error names the
// field and the type. NaN and Infinity, which Python writes, are not accepted as numbers.
func Decode(config []byte, into any) error {
	if err := filestart.Check(config); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	err := json.Unmarshal(pythonjson.Quoted(config), into)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case wrong.Field == "":
		return fmt.Errorf("%w: want a JSON object, not %s", ErrInvalid, wrong.Value)
	}
	return fmt.Errorf("%w: %s: want %s, not %s", ErrInvalid, wrong.Field, kind(wrong.Type), wrong.Value)
}

// kind describes the values that a field of a Go type accepts.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

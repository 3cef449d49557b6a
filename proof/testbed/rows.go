package testbed

import (
	"bytes"
	"fmt"
	"os"

	"github.com/pelletier/go-toml/v2"
)

// ReadRows reads the rows of a measurement from a file. check returns a row's name, and an error if
// the row is invalid. It may set defaults in the row.
func ReadRows[T any](path string, check func(row *T) (name string, err error)) ([]T, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	var file struct {
		Row []T `toml:"row"`
	}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&file); err != nil {
		return nil, fmt.Errorf("read rows: %s: %w", path, err)
	}
	for i := range file.Row {
		if name, err := check(&file.Row[i]); err != nil {
			return nil, fmt.Errorf("read rows: %s: row %d, %q: %w", path, i+1, name, err)
		}
	}
	return file.Row, nil
}

package testbed

import (
	"fmt"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Override returns the text of a state.toml with keys set to other values, which psyche validates.
func Override(state []byte, values map[string]any) ([]byte, error) {
	var document map[string]any
	if err := toml.Unmarshal(state, &document); err != nil {
		return nil, fmt.Errorf("override settings: %w", err)
	}
	for path, value := range values {
		keys := strings.Split(path, ".")
		table := document
		for i, key := range keys[:len(keys)-1] {
			next, ok := table[key].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("override %s: state.toml has no table %s", path, strings.Join(keys[:i+1], "."))
			}
			table = next
		}
		table[keys[len(keys)-1]] = value
	}
	return toml.Marshal(document)
}

// Duration is a time.Duration in text form.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

package config

import (
	"encoding/json"

	"github.com/psyche-go/psyche/base/plain"
)

// Maximum lengths of a run's name and description, in bytes.
const (
	MaxName        = 64
	MaxDescription = 280
)

// NameOf returns the name and the description in a run's definition. Each is empty if the
// definition has none that may be shown. No rule depends on them.
func NameOf(definition []byte) (name, description string) {
	var says struct{ Name, Description string }
	if json.Unmarshal(definition, &says) != nil {
		return "", ""
	}
	if plain.CheckName(says.Name, MaxName) == nil {
		name = says.Name
	}
	if plain.CheckName(says.Description, MaxDescription) == nil {
		description = says.Description
	}
	return name, description
}

// readShown reads a text for display.
func (t *table) readShown(key string, size int) string {
	text := t.textOr(key, "", size)
	if text == "" {
		return ""
	}
	if err := plain.CheckName(text, size); err != nil {
		t.fail(key, "%v", err)
	}
	return text
}

package wandb

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// Run describes a run of Weights & Biases.
type Run struct {
	Project string         // default: "psyche"
	Entity  string         // user or team; empty: the key's owner
	Group   string         // empty: none
	Name    string         // display name
	Config  map[string]any // settings, as JSON values
}

// newID generates a run id from the service's alphabet.
func newID() (string, error) {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	raw := make([]byte, 8)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	for i, b := range raw {
		raw[i] = letters[int(b)%len(letters)]
	}
	return string(raw), nil
}

// settings encodes the config in the service's form: every value in an object.
func (r Run) settings() (string, error) {
	all := map[string]map[string]any{}
	for name, value := range r.Config {
		all[name] = map[string]any{"value": value}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("settings of the run: %w", err)
	}
	return string(text), nil
}

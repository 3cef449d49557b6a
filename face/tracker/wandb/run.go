package wandb

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// Run names a run of Weights & Biases.
type Run struct {
	Project string         // "psyche" unless given
	Entity  string         // user or team; empty: the key's own
	Group   string         // empty: none
	Name    string         // what people see
	Config  map[string]any // settings, of what JSON knows
}

// newID makes a run's id, of the letters that the service uses.
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

// settings is the config as the service keeps it: every value in an object.
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

package llama

import (
	"reflect"
	"testing"
)

// TestKeysAreReadOnce checks that only one field reads each key of config.json: encoding/json
// ignores two embedded fields with the same key.
func TestKeysAreReadOnce(t *testing.T) {
	fields := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[own]()) {
		key := field.Tag.Get("json")
		if before, twice := fields[key]; twice && key != "" {
			t.Errorf("%s and %s both read %s", before, field.Name, key)
		}
		fields[key] = field.Name
	}
}

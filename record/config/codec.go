package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// errNotCanonical means that the bytes are not an output of EncodeModel.
var errNotCanonical = errors.New("not the canonical encoding of a model definition")

// EncodeModel returns the canonical bytes of a model definition: JSON of the types of this package
// in the order of their fields, without spaces. Equal definitions have equal bytes. EncodeModel
// returns an error if the definition does not fit into a coordinator's state.
func EncodeModel(m Model) ([]byte, error) {
	encoded, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode model definition: %w", err)
	}
	if len(encoded) > coordinator.MaxDefinitionSize {
		return nil, fmt.Errorf("encode model definition: %d bytes, at most %d fit; shorten the list of data locations",
			len(encoded), coordinator.MaxDefinitionSize)
	}
	return encoded, nil
}

// DecodeModel decodes the output of EncodeModel. It returns an error for all other bytes.
func DecodeModel(encoded []byte) (Model, error) {
	if len(encoded) > coordinator.MaxDefinitionSize {
		return Model{}, fmt.Errorf("decode model definition: %w: %d bytes, at most %d",
			errNotCanonical, len(encoded), coordinator.MaxDefinitionSize)
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	var m Model
	if err := decoder.Decode(&m); err != nil {
		return Model{}, fmt.Errorf("decode model definition: %w: %w", errNotCanonical, err)
	}
	if again, err := EncodeModel(m); err != nil || !bytes.Equal(again, encoded) {
		return Model{}, fmt.Errorf("decode model definition: %w", errNotCanonical)
	}
	if err := m.check(); err != nil {
		return Model{}, fmt.Errorf("decode model definition: %w", err)
	}
	return m, nil
}

package generate

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/learn/model"
)

// ConfigFile is the file of a model with the defaults for text generation.
const ConfigFile = "generation_config.json"

// OutsideToken is the id of a token that the model's vocabulary does not have.
type OutsideToken struct {
	File, Field string
	ID          int32
	VocabSize   int
}

// Error implements error.
func (o OutsideToken) Error() string {
	return fmt.Sprintf("%s: %s is %d, but vocab_size is %d; correct the file", o.File, o.Field, o.ID, o.VocabSize)
}

// OutsideTokens returns the ids that begin and end texts and are beyond the vocabulary, in the order of files and fields.
// It skips files that are damaged or missing, which EndTokens and BeginToken report.
func OutsideTokens(s checkpoint.Snapshot) (all []OutsideToken) {
	config, _ := s.File(checkpoint.ConfigFile)
	of, err := model.Describe(config)
	if err != nil {
		return nil
	}
	for _, name := range []string{checkpoint.ConfigFile, ConfigFile, tokenizer.ConfigFile} {
		for _, field := range []string{"bos_token_id", "eos_token_id"} {
			ids, _ := tokenIDs(s, name, field)
			for _, id := range ids {
				if int(id) >= of.VocabSize {
					all = append(all, OutsideToken{name, field, id, of.VocabSize})
				}
			}
		}
	}
	return all
}

// EndTokens returns the ids that end a text, from eos_token_id of generation_config.json, or else of config.json: one,
// several or none. Its errors name the file.
func EndTokens(s checkpoint.Snapshot) ([]int32, error) {
	for _, name := range []string{ConfigFile, checkpoint.ConfigFile} {
		if ids, err := tokenIDs(s, name, "eos_token_id"); err != nil || len(ids) > 0 {
			return ids, err
		}
	}
	return nil, nil
}

// BeginToken returns the token that starts a text, from bos_token_id of config.json, or else the
// first token that ends a text, or nil.
func BeginToken(s checkpoint.Snapshot) (*int32, error) {
	ids, err := tokenIDs(s, checkpoint.ConfigFile, "bos_token_id")
	if err == nil && len(ids) == 0 {
		ids, err = EndTokens(s)
	}
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	for _, one := range OutsideTokens(s) {
		if one.ID == ids[0] && one.File != tokenizer.ConfigFile {
			return nil, one
		}
	}
	return &ids[0], nil
}

// tokenIDs reads a field with an id or a list of ids from a file of the model. It returns none if
// the file or the field is absent, or the field is null.
func tokenIDs(s checkpoint.Snapshot, name, field string) ([]int32, error) {
	data, found := s.File(name)
	if !found {
		return nil, nil
	}
	if err := filestart.Check(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var all map[string]json.RawMessage
	err := json.Unmarshal(pythonjson.Quoted(data), &all)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, fmt.Errorf("%s: want a JSON object, not %s", name, wrong.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w; correct the file", name, err)
	}
	if all == nil {
		return nil, fmt.Errorf("%s: want a JSON object, not null", name)
	}
	raw := all[field]
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	several := []*int32{nil}
	if json.Unmarshal(raw, &several[0]) != nil {
		if err := json.Unmarshal(raw, &several); err != nil {
			return nil, fmt.Errorf("%s: %s is %.80s, want the id of a token or a list of ids", name, field, pythonjson.Unquoted(raw))
		}
	}
	ids := make([]int32, 0, len(several))
	for _, id := range several {
		if id == nil || *id < 0 {
			return nil, fmt.Errorf("%s: %s is %.80s, want ids of tokens from 0, and no null", name, field, raw)
		}
		ids = append(ids, *id)
	}
	return ids, nil
}

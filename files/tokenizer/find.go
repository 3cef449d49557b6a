package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// Tokenizer files in a model's folder. If there is no JSONFile, PieceFile is read, and with it
// ConfigFile and AddedFile if they exist.
const (
	JSONFile   = "tokenizer.json"
	PieceFile  = "tokenizer.model"
	ConfigFile = "tokenizer_config.json"
	AddedFile  = "added_tokens.json"
)

// ErrNone means that a model has no tokenizer.
var ErrNone = errors.New("no " + JSONFile + " and no " + PieceFile)

// Find reads the tokenizer of a model. file returns the model's files by name.
func Find(file func(name string) (data []byte, found bool)) (*Tokenizer, error) {
	if text, found := file(JSONFile); found {
		t, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", JSONFile, err)
		}
		return t, nil
	}
	raw, found := file(PieceFile)
	if !found {
		return nil, ErrNone
	}
	t, err := ParseSentencePiece(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PieceFile, err)
	}
	if text, found := file(ConfigFile); found {
		if err := t.configure(text); err != nil {
			return nil, fmt.Errorf("%s: %w", ConfigFile, err)
		}
	}
	if text, found := file(AddedFile); found {
		var ids map[string]int64
		if err := decode(text, &ids); err != nil {
			return nil, fmt.Errorf("%s: %w", AddedFile, err)
		}
		for _, token := range slices.Sorted(maps.Keys(ids)) {
			if err := t.checkPiece(token, ids[token]); err != nil {
				return nil, fmt.Errorf("%s: %w", AddedFile, err)
			}
		}
	}
	return t, nil
}

// decode decodes JSON written by Python.
func decode(text []byte, into any) error {
	if err := filestart.Check(text); err != nil {
		return err
	}
	err := json.Unmarshal(pythonjson.Quoted(text), into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("want a JSON object, not %s", wrong.Value)
		}
		return fmt.Errorf("%s has the wrong type: %s", wrong.Field, wrong.Value)
	}
	return err
}

// LoadDir reads the tokenizer of a model's folder.
func LoadDir(dir string) (*Tokenizer, error) {
	var failed error
	t, err := Find(func(name string) ([]byte, bool) {
		data, err := readFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		return data, err == nil
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("load tokenizer of %s: %w", dir, err)
	}
	return t, nil
}

// readFile reads a file, but not more than the limit.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened only for reading
	return io.ReadAll(io.LimitReader(file, maxFileSize+1))
}

// checkPiece refuses a token that a tokenizer.model does not have, because other files define its
// text, and readers interpret these differently.
func (t *Tokenizer) checkPiece(token string, id int64) error {
	if id >= 0 && id < int64(len(t.model.tokens)) && t.model.tokens[id] == token {
		return nil
	}
	return fmt.Errorf("%w: token %.80q with id %d is not in %s; write a %s with save_pretrained of a fast tokenizer",
		errUnsupported, token, id, PieceFile, JSONFile)
}

// configure reads the tokens before and after a text from a tokenizer_config.json.
func (t *Tokenizer) configure(text []byte) error {
	var config struct {
		AddBOS *bool           `json:"add_bos_token"`
		AddEOS *bool           `json:"add_eos_token"`
		BOS    json.RawMessage `json:"bos_token"`
		EOS    json.RawMessage `json:"eos_token"`
		Added  map[string]struct {
			Content string `json:"content"`
		} `json:"added_tokens_decoder"`
	}
	if err := decode(text, &config); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(config.Added)) {
		id, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return fmt.Errorf("%w: added_tokens_decoder has the invalid id %.20q", errUnsupported, number)
		}
		if err := t.checkPiece(config.Added[number].Content, id); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}
	var err error
	if config.AddBOS != nil && *config.AddBOS {
		if t.template.before, err = t.named("bos_token", config.BOS); err != nil {
			return err
		}
	}
	if config.AddEOS != nil && *config.AddEOS {
		t.template.after, err = t.named("eos_token", config.EOS)
	}
	return err
}

// named returns the ID of a token that is given as a string, or as an object with its content.
func (t *Tokenizer) named(key string, raw json.RawMessage) ([]int32, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("%w: %s is missing", errUnsupported, key)
	}
	var name string
	if json.Unmarshal(raw, &name) != nil {
		var token struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(raw, &token) != nil {
			return nil, fmt.Errorf("%w: %s is %s, want a token", errUnsupported, key, shorten(raw))
		}
		name = token.Content
	}
	id, found := t.ID(name)
	if !found {
		return nil, fmt.Errorf("%w: %s is %.80q, which is not in %s", errUnsupported, key, name, PieceFile)
	}
	return []int32{id}, nil
}

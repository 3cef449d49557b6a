package hosting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
)

// recordFile is the file in the run's folder with the record.
const recordFile = "host.json"

// record contains the settings of a prepared run. The host writes it after each step.
type record struct {
	Version int    `json:"version"` // 1
	Wanted  wanted `json:"wanted"`  // settings of the prepared files

	DataOf    string  `json:"data_of"`  // settings from which the token files were made
	ModelOf   string  `json:"model_of"` // settings from which the model was made
	Speed     float64 `json:"speed"`    // tokens per second of this machine; 0: not measured
	Host      string  `json:"host"`     // in the invite link
	FirstPort uint16  `json:"first_port"`
	State     string  `json:"state"` // SHA-256 of state.toml as this package wrote it
}

// wanted has the settings that determine a run.
type wanted struct {
	Texts      []string `json:"texts" flag:"texts"`
	Stat       string   `json:"stat" flag:"-"`                       // hash of the names, sizes and times of the files
	Text       string   `json:"text" flag:"the content of the text"` // hash of the content of the files
	Tokenizer  string   `json:"tokenizer" flag:"--tokenizer"`
	Vocabulary string   `json:"tokenizer_content" flag:"the content of the tokenizer"` // hash of its file; empty: not a file
	Model      string   `json:"model" flag:"--model"`
	Friends    int      `json:"friends" flag:"--friends"`
	Link       float64  `json:"link" flag:"--link"`
	Hours      float64  `json:"hours" flag:"--hours"`
	Open       bool     `json:"open" flag:"--open"`
	Authority  string   `json:"main_authority" flag:"--main-authority"`
	PublicAddr string   `json:"public_addr" flag:"--public-addr"`
	Port       uint16   `json:"port" flag:"--port"`
}

// ofData describes the settings that determine the token files.
func (w wanted) ofData() string {
	return fmt.Sprintf("%q with the content %s, tokenizer %s", w.Texts, w.Text, w.tokenizer())
}

// ofModel describes the settings that determine the first model.
func (w wanted) ofModel() string { return fmt.Sprintf("%s, tokenizer %s", w.Model, w.tokenizer()) }

func (w wanted) tokenizer() string { return strings.TrimSpace(w.Tokenizer + " " + w.Vocabulary) }

// differences describes the settings that differ from the earlier settings.
func (w wanted) differences(earlier wanted) string {
	var all []string
	now, before := reflect.ValueOf(w), reflect.ValueOf(earlier)
	for i := range now.NumField() {
		name := now.Type().Field(i).Tag.Get("flag")
		a, b := before.Field(i).Interface(), now.Field(i).Interface()
		switch {
		case name == "-" || reflect.DeepEqual(a, b):
		case strings.HasPrefix(name, "the content"):
			all = append(all, name+" has changed")
		default:
			all = append(all, fmt.Sprintf("%s was %v and is %v", name, a, b))
		}
	}
	return strings.Join(all, ", ")
}

// readRecord reads the record of the folder; found is false if there is none.
func (h *host) readRecord() (found bool, err error) {
	text, err := os.ReadFile(h.path(recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&h.record)
	}
	if err == nil && h.Version != 1 {
		err = fmt.Errorf("version %d, want 1", h.Version)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w; begin again with --again", h.path(recordFile), err)
	}
	return true, nil
}

// keep writes the record.
func (h *host) keep() error {
	h.Version = 1
	text, err := json.MarshalIndent(h.record, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(h.path(recordFile), append(text, '\n'))
}

// writeFile replaces a file completely, or not at all.
func writeFile(path string, content []byte) error {
	unfinished := path + ".new"
	err := os.WriteFile(unfinished, content, 0o644)
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // the next call replaces what remains
	}
	return err
}

package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
)

// InitModel creates the first weights of a config.json in the folder dir/model and returns its path.
func InitModel(ctx context.Context, client, dir string, config []byte, flags ...string) (string, error) {
	path, model := filepath.Join(dir, "config.json"), filepath.Join(dir, "model")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return "", err
	}
	_, err := child.Output(ctx, nil, client, append([]string{"init-model", "--config", path, "--seed", "1", "--output", model}, flags...)...)
	return model, err
}

// tokenFile is the name of the file of WriteTokens.
const tokenFile = "train.ds"

// WriteTokens writes two-byte tokens into a new folder.
func WriteTokens(dir string, tokens []uint16) error {
	var content []byte
	for _, token := range tokens {
		content = binary.LittleEndian.AppendUint16(content, token)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, tokenFile), content, 0o644)
}

// Source is the data source of a run.
type Source struct {
	Location map[string]any // data_location in state.toml
	Config   string         // data.toml of a data server; empty: none
	URL      string         // of the HTTP server; empty: none
	End      func()         // ends the HTTP server
}

// Serve serves the folder of WriteTokens to the members of a run, as kind: "local", "http", "bucket",
// or "server" with the data server's address. It writes the data server's configuration into dir.
func Serve(kind, tokens, dir string, length int, address string, buckets *fakegcs.Server) (s Source, err error) {
	s.End = func() {}
	if tokens, err = filepath.Abs(tokens); err != nil { // data.toml would name it relative to its own folder
		return s, err
	}
	overHTTP := func(location map[string]any) map[string]any {
		return map[string]any{"Http": map[string]any{"location": location, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}}
	}
	switch kind {
	case "http":
		served := httptest.NewServer(http.FileServer(http.Dir(tokens)))
		s.URL, s.End = served.URL, served.Close
		s.Location = overHTTP(map[string]any{"SingleUrl": served.URL + "/" + tokenFile})
	case "bucket":
		content, err := os.ReadFile(filepath.Join(tokens, tokenFile))
		if err != nil {
			return s, err
		}
		buckets.Set("tokens", "all/"+tokenFile, content)
		s.Location = overHTTP(map[string]any{"Gcp": map[string]any{"bucket_name": "tokens", "filter_directory": "all"}})
	case "server":
		s.Location, s.Config = map[string]any{"Server": address}, filepath.Join(dir, "data.toml")
		settings := fmt.Sprintf("seq_len = %d\ndir = %q\ntoken_size = \"TwoBytes\"\nshuffle_seed = [%s0]\n", length, tokens, strings.Repeat("0, ", 31))
		return s, os.WriteFile(s.Config, []byte(settings), 0o644)
	default:
		s.Location = map[string]any{"Local": map[string]any{"path": tokens, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}}
	}
	return s, nil
}

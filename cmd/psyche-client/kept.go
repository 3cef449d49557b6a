package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/paths"
)

// kept is the default folder for the data of a user's clients.
type kept string

// stateFolder returns the user's folder.
func stateFolder() (kept, error) {
	dir, err := paths.State(os.LookupEnv)
	return kept(dir), err
}

// run returns the folder of a run. The hash distinguishes runs with the same name.
func (k kept) run(id string, hash [32]byte) string {
	return filepath.Join(string(k), "runs", fmt.Sprintf("%s-%x", url.QueryEscape(id), hash[:8]))
}

// keyFile returns the path of the user's key.
func (k kept) keyFile() string { return filepath.Join(string(k), "identity.json") }

// key returns the user's key, and creates it if it does not exist.
func (k kept) key() (key identity.Key, made bool, err error) {
	key, err = identity.LoadKeyFile(k.keyFile())
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	if err := os.MkdirAll(string(k), 0o700); err != nil {
		return key, false, fmt.Errorf("create the folder for this user's key: %w", err)
	}
	if key, err = identity.Generate(rand.Reader); err != nil {
		return key, false, err
	}
	err = identity.SaveKeyFile(k.keyFile(), key)
	if errors.Is(err, identity.ErrKeyFileExists) { // another client has just created it
		key, err = identity.LoadKeyFile(k.keyFile())
		return key, false, err
	}
	return key, err == nil, err
}

// keptKey returns the user's key and logs its path.
func keptKey(logger *slog.Logger) (identity.Key, error) {
	dir, err := stateFolder()
	if err != nil {
		return identity.Key{}, fmt.Errorf("%w, or name a key with --identity-secret-key-path", err)
	}
	key, made, err := dir.key()
	if err != nil {
		return key, err
	}
	if made {
		logger.Info("created your key, which identifies you to other members and is reused at the next start; keep the file secret", "id", key.ID(), "file", dir.keyFile())
	} else {
		logger.Info("taking part with your key", "id", key.ID(), "file", dir.keyFile())
	}
	return key, nil
}

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/paths"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
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

// nameFile returns the path of the user's display name.
func (k kept) nameFile() string { return filepath.Join(string(k), "name") }

// name returns the user's display name, and stores given as the name if it is not empty. It returns "" if no name was ever
// given.
func (k kept) name(given string) (string, error) {
	if given != "" {
		return given, atomicfile.Write(k.nameFile(), []byte(given+"\n"), 0o600)
	}
	file, err := os.Open(k.nameFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, coordinator.MaxMemberName+2))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", k.nameFile(), err)
	}
	name := strings.TrimSuffix(string(text), "\n")
	if err := wire.CheckName(name); err != nil {
		return "", fmt.Errorf("%s: %w; correct or delete the file, or pass --member-name", k.nameFile(), err)
	}
	return name, nil
}

// keepName sets --member-name to the name of an earlier start with the user's key, or keeps the given name for later starts.
func (c *trainCommand) keepName(logger *slog.Logger) error {
	dir, err := stateFolder()
	if err != nil {
		return err
	}
	name, err := dir.name(c.MemberName)
	switch {
	case c.MemberName != "" && err != nil:
		logger.Warn("cannot keep your display name for later starts", "err", err)
		return nil
	case err == nil && c.MemberName == "" && name != "":
		logger.Info("taking part with your display name; --member-name replaces it", "name", name, "file", dir.nameFile())
	}
	c.MemberName = name
	return err
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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/paths"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
)

// authorityKey returns the host's key, if it is the key of the run's main authority and in one of the usual places of this
// machine. Otherwise it returns missing, with the authority that has to sign. The connection proves that the server has
// the host's key. With another authority, a dishonest server could name the authority of a different run, and get an action
// for that run.
func (f actFlags) authorityKey(ctx context.Context, to console, missing error) (identity.Key, error) {
	state, err := f.look(ctx, f.RunID, to.err)
	if err != nil {
		return identity.Key{}, err
	}
	places := keyFiles(os.LookupEnv)
	if state.Authority.Main != state.Host {
		places = nil
	}
	for _, path := range places {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // reading a pipe would not end
		}
		key, err := identity.LoadKeyFile(path)
		if errors.Is(err, identity.ErrKeyFileOpen) {
			missing = fmt.Errorf("%w; %w", missing, err)
		}
		if err == nil && coordinator.ClientID(key.ID()) == state.Authority.Main {
			_, _ = fmt.Fprintf(to.err, "psyche: signing with %s, the key of the run's main authority\n", path)
			return key, nil
		}
	}
	return identity.Key{}, fmt.Errorf("%w; the key of the run's main authority, %s, is needed", missing, identity.ID(state.Authority.Main))
}

// keyFiles returns the files that may have the key of a run's host: of a server in the current folder or a folder below
// it, and of the runs of psyche host.
func keyFiles(lookup func(string) (string, bool)) []string {
	beside, _ := filepath.Glob(filepath.Join("*", server.HostKeyFile)) // the pattern is valid
	places := append([]string{server.HostKeyFile}, beside...)
	state, err := paths.State(lookup)
	if err != nil {
		return places
	}
	hosted, _ := filepath.Glob(filepath.Join(state, "hosted", "*", "server", server.HostKeyFile)) // finds none if the folder's name is an invalid pattern
	return append(places, hosted...)
}

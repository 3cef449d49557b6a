package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/config"
)

// namesFolders reports whether a run's data is in folders of this machine.
func namesFolders(locations []config.DataLocation) bool {
	return slices.ContainsFunc(locations, func(l config.DataLocation) bool { return l.Folder() != "" })
}

// dataOptions returns the options for reading the run's data.
func (t *trainers) dataOptions(run config.Model, description model.Description) data.Options {
	return data.Options{
		SeqLen:    int(run.MaxSeqLen),
		VocabSize: description.VocabSize,
		Path:      t.command.DataPath,
		Web:       web.Options{Inner: t.command.AllowInnerData},
		Logger:    t.logger,
		// The run names the bucket. The user's own credentials are used only if the user permits
		// it.
		Bucket: func(ctx context.Context, name string) (objstore.Store, error) {
			return gcs.Open(ctx, name, gcs.Options{Credentials: t.command.GCSCredentials})
		},
		Server: func(ctx context.Context, at config.ServerData, o data.Options) (data.Provider, error) {
			return t.dataServer(ctx, at, o, len(run.DataLocations))
		},
	}
}

// Time limits for the first connection to a data server: if it is the only location of the data, and if
// the data has other locations. In the first case, the client cannot take part without the server.
const (
	onlyServerTimeout = time.Minute
	someServerTimeout = 5 * time.Second
)

// dataServer connects to a data server of a run with the given number of locations.
func (t *trainers) dataServer(ctx context.Context, at config.ServerData, o data.Options, locations int) (data.Provider, error) {
	timeout := onlyServerTimeout
	if locations > 1 {
		timeout = someServerTimeout
	}
	return remote.Open(ctx, remote.Options{
		Addr: at.Addr, Trust: t.trust(at), RunID: t.command.RunID, Run: t.run, Key: t.key,
		Inner:  t.command.AllowInnerData || sameHost(at.Addr, t.command.ServerAddr),
		SeqLen: o.SeqLen, VocabSize: o.VocabSize, OpenTimeout: timeout, Logger: t.logger,
	})
}

// sameHost reports whether a data server is on the host of the run's server, which the user named.
func sameHost(a, b string) bool {
	hostOfA, _, errA := net.SplitHostPort(a)
	hostOfB, _, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && strings.EqualFold(hostOfA, hostOfB)
}

// trust returns the check of a data server's key. The expected key is the one in the run, or else
// the key of the run's own server, or else the key last seen at the address.
func (t *trainers) trust(at config.ServerData) func(identity.ID) error {
	return func(found identity.ID) error {
		if at.Key != "" {
			want, err := identity.ParseID(at.Key)
			if err != nil {
				return fmt.Errorf("key of the data server: %w", err)
			}
			return secure.Pin(want)(found)
		}
		if found == t.host() {
			return nil
		}
		known, err := t.command.knownDataServers(t.logger)
		if err != nil {
			return err
		}
		return known.Check(at.Addr)(found)
	}
}

// knownDataServers opens the file with the keys of data servers. The file also contains the keys of the
// servers of runs. It is opened even if --server-key gives the key of the run's server.
func (c *trainCommand) knownDataServers(logger *slog.Logger) (*secure.KnownServers, error) {
	_, known, err := secure.Choose("", c.KnownServers, func(address string, key identity.ID) {
		logger.Warn("unknown data server key; verify it with the operator of the data server or the run", "server", address, "key", key)
	})
	return known, err
}

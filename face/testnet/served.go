package testnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/record/config"
)

// dataFile is the name of the configuration of a run's data server.
const dataFile = "data.toml"

// servedData reads the data.toml of a run whose own server serves the data. path is empty if there
// is none.
func servedData(configPath string, run config.Run) (path string, from config.DataServer, err error) {
	path = filepath.Join(configPath, dataFile)
	if _, err := os.Stat(path); configPath == "" || err != nil || !isServed(run) {
		return "", config.DataServer{}, nil
	}
	if from, err = config.LoadDataServer(path); err != nil {
		return "", from, ConfigError{err}
	}
	path, err = filepath.Abs(path)
	return path, from, err
}

// dataAt returns the address at which the run's clients look for a data server; nil if they use
// none.
func dataAt(run config.Run) *config.ServerData {
	for _, location := range run.Model.DataLocations {
		if location.Server != nil {
			return location.Server
		}
	}
	return nil
}

func isServed(run config.Run) bool { return dataAt(run) != nil }

// checkServed returns an error if no client would use the data that the network is to serve.
func checkServed(path string, run config.Run, chain Chain) error {
	at := dataAt(run)
	host, port, err := net.SplitHostPort(at.Addr)
	if err != nil {
		return ConfigError{fmt.Errorf("data location %q: %w", at.Addr, err)}
	}
	ip, err := netip.ParseAddr(host)
	if here := host == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified()); !here {
		return ConfigError{fmt.Errorf("clients would request the data of %s from %s, but a testnet serves the data on 127.0.0.1; set this host in data_location", path, at.Addr)}
	}
	if number, err := strconv.Atoi(port); err != nil || number == 0 || !child.IsFree(number) {
		return ConfigError{fmt.Errorf("port %[2]s for the data of %[1]s is invalid or in use; stop the program that uses the port, or set another port in data_location", path, port)}
	}
	if at.Key != "" && chain.Used {
		return ConfigError{fmt.Errorf("data_location has the data server key %s, but a testnet's data server has a new key; omit the key from data_location", at.Key)}
	}
	return nil
}

// dataFolder is the folder of the key and log of the data server for a run on a chain.
const dataFolder = "data-server"

// dataProcess describes a separate data server for a run on a chain; nil if the network serves no
// data. Clients learn its key at the first contact.
func (n *network) dataProcess() (*child.Process, error) {
	path, err := n.keptDataConfig()
	if path == "" || err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(dataAt(n.run).Addr)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(n.dir, dataFolder)
	if _, err := os.Stat(dir); err != nil {
		if err := newKeyFile(dir, identityFile); err != nil {
			return nil, err
		}
	}
	n.dataAddress = net.JoinHostPort("127.0.0.1", port)
	return &child.Process{
		OwnGroup: true,
		Name:     "data server",
		Log:      filepath.Join(dir, "data-server.log"),
		Program:  n.options.ServerBinary,
		Args: append([]string{
			"data", "serve", "--data-config", path, "--run-id", n.run.RunID, "--listen-addr", n.dataAddress,
			"--keypair", filepath.Join(dir, identityFile), "--log", "console",
		}, n.hostFlags...),
	}, nil
}

// serveOnChain starts the data server of a run on a chain. stop stops it.
func (n *network) serveOnChain(ctx context.Context) (stop func(), err error) {
	if n.data == nil {
		return func() {}, nil
	}
	if err := n.data.Start(); err != nil {
		return nil, err
	}
	if err := n.data.AwaitPort(ctx, n.dataAddress); err != nil {
		n.data.Stop(shutdownGrace)
		return nil, err
	}
	n.tell("the data server of the run listens on %s", n.dataAddress)
	return func() { n.data.Stop(shutdownGrace) }, nil
}

// keptDataConfig saves the data.toml that the network serves, so that the run can be resumed, and
// returns its path. The path is empty if the network serves no data.
func (n *network) keptDataConfig() (string, error) {
	kept := filepath.Join(n.serverDir(), dataFile+".path")
	path, _, err := servedData(n.options.ConfigPath, n.run)
	switch {
	case err != nil:
		return "", err
	case path != "":
		err = os.WriteFile(kept, []byte(path), 0o644)
	case isServed(n.run):
		var text []byte
		if text, err = os.ReadFile(kept); os.IsNotExist(err) {
			return "", nil // a server outside of the network serves it
		}
		path = strings.TrimSpace(string(text))
		if _, gone := os.Stat(path); err == nil && gone != nil {
			err = fmt.Errorf("the file with the run's data is missing: %w", gone)
		}
	}
	return path, err
}

// knownServers makes clients of a run on a chain store the data server's key in the run's folder,
// where it cannot conflict with the keys of other networks.
func (n *network) knownServers() []string {
	if n.data == nil {
		return nil
	}
	return []string{"--known-servers", filepath.Join(n.dir, dataFolder, "known_servers")}
}

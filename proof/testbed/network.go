package testbed

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/server"
)

// Network is a run on this machine: a host, which is a server or a chain, and members. The caller
// starts its nodes.
type Network struct {
	Bin   string // folder of psyche and psyche-client
	Dir   string // parent of the nodes' folders
	RunID string

	Host    *Node
	Address string   // of the host
	Flags   []string // for members and commands to find the run; set by NewServer and NewChain
	Members []*Node
}

// Node is a process of a network, with its own folder and key.
type Node struct {
	child.Process
	Dir     string
	Key     identity.Key
	KeyPath string
}

// Psyche returns the path of psyche.
func (n *Network) Psyche() string { return filepath.Join(n.Bin, "psyche") }

// Client returns the path of psyche-client.
func (n *Network) Client() string { return filepath.Join(n.Bin, "psyche-client") }

// StatePath returns the path of the state.toml of a network with a server.
func (n *Network) StatePath() string { return filepath.Join(n.Dir, "state.toml") }

// Events returns the path of the node's event log.
func (n *Node) Events() string { return filepath.Join(n.Dir, "events.jsonl") }

// node creates a node with its folder. The caller sets its key and its command line.
func (n *Network) node(name, log string, place Place) (*Node, error) {
	dir := filepath.Join(n.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	return &Node{Dir: dir, Process: child.Process{Name: name, Log: filepath.Join(dir, log), Env: place.Env, Wrap: place.Wrap}}, nil
}

// newHost creates the host with its key, which is the main authority of the run, and its address.
// The next port is free too.
func (n *Network) newHost(place Place) (port int, err error) {
	if n.Host, err = n.node("server", "server.log", place); err != nil {
		return 0, err
	}
	if n.Host.Key, err = server.HostKey(n.Host.Dir, rand.Reader); err != nil {
		return 0, err
	}
	if port, err = child.FreePorts(); err != nil {
		return 0, err
	}
	n.Host.Program, n.Host.KeyPath = n.Psyche(), filepath.Join(n.Host.Dir, server.HostKeyFile)
	n.Address = net.JoinHostPort(place.Address, strconv.Itoa(port))
	return port, nil
}

// NewServer creates a server that hosts the run of a state.toml. flags are its additional flags.
func (n *Network) NewServer(place Place, state []byte, flags ...string) error {
	if err := os.WriteFile(n.StatePath(), state, 0o644); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	port, err := n.newHost(place)
	if err != nil {
		return err
	}
	n.Host.Args = append([]string{
		"server", "run", "--state", n.StatePath(), "--run-id", n.RunID, "--save-state-dir", n.Host.Dir, "--events-dir", n.Host.Dir,
		"--server-addr", place.Address, "--server-port", strconv.Itoa(port),
	}, flags...)
	n.Flags = []string{"--server-addr", n.Address, "--server-key", n.Host.Key.ID().String()}
	return nil
}

// NewChain creates a chain in memory. The caller creates the run on it.
func (n *Network) NewChain(place Place, slotMs int) error {
	port, err := n.newHost(place)
	if err != nil {
		return err
	}
	n.Host.Args = []string{"chain", "start", "--listen", n.Address, "--slot-ms", strconv.Itoa(slotMs)}
	n.Flags = []string{"--rpc", "http://" + n.Address, "--ws-rpc", "ws://" + net.JoinHostPort(place.Address, strconv.Itoa(port+1))}
	return nil
}

// NewMember adds a member with a new key. Its lives share the key, the folder and the event log.
// The host must exist. flags are its additional flags.
func (n *Network) NewMember(place Place, flags ...string) (*Node, error) {
	m, err := n.node(fmt.Sprintf("client-%d", len(n.Members)+1), "client.log", place)
	if err != nil {
		return nil, err
	}
	if m.Key, err = identity.Generate(rand.Reader); err != nil {
		return nil, err
	}
	m.Program, m.KeyPath = n.Client(), filepath.Join(m.Dir, "identity.json")
	m.Args = append(append([]string{
		"train", "--run-id", n.RunID, "--identity-secret-key-path", m.KeyPath, "--bind-p2p-address", place.Address,
		"--allow-local-paths", "--allow-inner-data", "--events-dir", m.Dir, "--checkpoint-dir", filepath.Join(n.checkpointDir(), m.Name),
	}, n.Flags...), flags...)
	n.Members = append(n.Members, m)
	return m, identity.SaveKeyFile(m.KeyPath, m.Key)
}

// checkpointDir returns the parent folder of all members' checkpoints.
func (n *Network) checkpointDir() string { return filepath.Join(n.Dir, "checkpoints") }

// Command runs a psyche command about the run and returns its output.
func (n *Network) Command(ctx context.Context, args ...string) ([]byte, error) {
	return child.Output(ctx, n.Host.Env, n.Psyche(), append(args, n.Flags...)...)
}

// Authorize admits a key to a permissioned run. flags are additional flags of the command.
func (n *Network) Authorize(ctx context.Context, key string, flags ...string) error {
	_, err := n.Command(ctx, append([]string{"run", "authorize", key, "--run-id", n.RunID, "--keypair", n.Host.KeyPath}, flags...)...)
	return err
}

// StartAll starts the host and all members. The end of ctx ends them.
func (n *Network) StartAll(ctx context.Context) error {
	for _, one := range append([]*Node{n.Host}, n.Members...) {
		if err := one.StartUntil(ctx); err != nil {
			return err
		}
	}
	return nil
}

// AwaitMembers returns when every member has ended, with the first failure.
func (n *Network) AwaitMembers() error {
	for _, m := range n.Members {
		if err := m.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// AwaitAll waits until all started processes have ended. Their context must have ended, or end
// soon.
func (n *Network) AwaitAll() {
	for _, one := range append([]*Node{n.Host}, n.Members...) {
		if one != nil && one.Started() {
			<-one.Ended()
		}
	}
}

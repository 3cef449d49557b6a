package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/record/event"
)

// networkFlags configure a member's connections to its peers and the resources for them.
type networkFlags struct {
	BindP2PAddress   string `name:"bind-p2p-address" help:"IP address to listen on for peers; :: means all IPv6 addresses. Default: all IPv4 addresses." placeholder:"IP" xor:"bind-p2p"`
	BindP2PInterface string `name:"bind-p2p-interface" help:"Network interface to listen on for peers, instead of an address. A trailing * matches any rest of the name." placeholder:"NAME" xor:"bind-p2p"`
	BindP2PPort      uint16 `name:"bind-p2p-port" help:"Port to listen on for peers, UDP and TCP; 0 picks a free port." default:"0"`

	P2PRelay       []string `name:"p2p-relay" help:"Circuit relay to use in addition to the members, for example /ip4/192.0.2.7/tcp/4001/p2p/12D3K…. May be repeated." placeholder:"ADDR" sep:"none"`
	Relaying       bool     `help:"Reach members behind a NAT through other members, and act as a relay for them." default:"true" negatable:""`
	LocalDiscovery bool     `help:"Find members in the local network by multicast DNS. Has no effect if the client listens only on this machine." default:"true" negatable:""`
	MaxUploadRate  float64  `help:"Upload limit for blobs, pushed results, gossip and relayed traffic, in MiB/s; 0 means unlimited." default:"0" placeholder:"RATE"`

	MaxConcurrentDownloads         int `help:"Maximum number of concurrent downloads of peers' results." default:"8"`
	MaxConcurrentParameterRequests int `help:"Maximum number of concurrent downloads of model parts." default:"8"`

	MaxBlobMemory int64  `help:"Memory for blobs shared with peers, in MiB: results, and downloaded model parameters if there is no --blob-dir. Blobs that do not fit go to --blob-dir." default:"4096"`
	BlobDir       string `help:"Folder for model parameters downloaded from peers, so that a restarted client downloads only the rest, and for blobs that do not fit into --max-blob-memory. Each client needs its own folder. Default: .blobs in --checkpoint-dir; without --checkpoint-dir, parameters stay in memory." type:"path" placeholder:"DIR"`
	MaxBlobDisk   int64  `help:"Disk space for --blob-dir, in MiB." default:"65536"`
}

// check returns an error if the flags are invalid.
func (f *networkFlags) check() error {
	switch {
	case f.MaxBlobMemory < 1 || f.MaxBlobMemory > math.MaxInt64>>20:
		return fmt.Errorf("--max-blob-memory is %d: want at least 1 MiB, and enough for the model and the results of a round", f.MaxBlobMemory)
	case f.MaxBlobDisk < 1 || f.MaxBlobDisk > math.MaxInt64>>20:
		return fmt.Errorf("--max-blob-disk is %d: want at least 1 MiB, and enough for two models", f.MaxBlobDisk)
	case !(f.MaxUploadRate >= 0) || f.MaxUploadRate > 1<<20:
		return fmt.Errorf("--max-upload-rate is %v: want MiB per second, or 0 for no limit", f.MaxUploadRate)
	case f.MaxConcurrentDownloads < 1:
		return fmt.Errorf("--max-concurrent-downloads is %d: want at least 1", f.MaxConcurrentDownloads)
	case f.MaxConcurrentParameterRequests < 1:
		return fmt.Errorf("--max-concurrent-parameter-requests is %d: want at least 1", f.MaxConcurrentParameterRequests)
	}
	return nil
}

// address returns the IP address to listen on.
func (f *networkFlags) address() (net.IP, error) {
	switch {
	case f.BindP2PInterface != "":
		return interfaceAddress(f.BindP2PInterface)
	case f.BindP2PAddress == "":
		return net.IPv4zero, nil
	}
	ip := net.ParseIP(f.BindP2PAddress)
	if ip == nil {
		return nil, fmt.Errorf("--bind-p2p-address is %q: want an IP address", f.BindP2PAddress)
	}
	return ip, nil
}

// interfaceAddress returns the first address of an interface, IPv4 if it has one.
func interfaceAddress(name string) (net.IP, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("--bind-p2p-interface: %w", err)
	}
	prefix, wild := strings.CutSuffix(name, "*")
	var names []string
	for _, i := range interfaces {
		names = append(names, i.Name)
		if i.Name != name && (!wild || !strings.HasPrefix(i.Name, prefix)) {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("--bind-p2p-interface %s: %w", i.Name, err)
		}
		var first net.IP
		for _, addr := range addrs {
			ip, _, err := net.ParseCIDR(addr.String())
			switch {
			case err != nil || ip.IsLinkLocalUnicast():
			case ip.To4() != nil:
				return ip, nil
			case first == nil:
				first = ip
			}
		}
		if first != nil {
			return first, nil
		}
	}
	return nil, fmt.Errorf("--bind-p2p-interface %s: no such interface with an address; available: %s", name, strings.Join(names, ", "))
}

// options returns the options of the peer-to-peer node. The node uses TCP for bulk data, and QUIC if
// TCP cannot connect.
func (f *networkFlags) options(key identity.Key, events *event.Log, logger *slog.Logger) (p2p.Options, error) {
	ip, err := f.address()
	if err != nil {
		return p2p.Options{}, err
	}
	family := "ip4"
	if ip.To4() == nil {
		family = "ip6"
	}
	return p2p.Options{
		Key: key,
		Listen: []string{
			fmt.Sprintf("/%s/%s/tcp/%d", family, ip, f.BindP2PPort),
			fmt.Sprintf("/%s/%s/udp/%d/quic-v1", family, ip, f.BindP2PPort),
		},
		NoRelay:        !f.Relaying,
		Relays:         f.P2PRelay,
		LocalDiscovery: f.LocalDiscovery && !ip.IsLoopback(),
		MaxUploadRate:  int64(f.MaxUploadRate * (1 << 20)),
		OnPenalty: func(p p2p.Penalty) {
			events.Note(logger, event.Misbehaved{
				Peer: p.Peer.String(), Fault: string(p.Fault), Detail: p.Detail, Times: p.Times, Score: p.Score,
			})
		},
		Logger: logger,
	}, nil
}

// openStore opens the store of the data that is shared with peers.
func (f *networkFlags) openStore(checkpointDir string, logger *slog.Logger) (*blob.Store, error) {
	dir := f.BlobDir
	if dir == "" && checkpointDir != "" {
		dir = filepath.Join(checkpointDir, ".blobs")
	}
	store, err := blob.OpenStore(blob.Options{
		MaxMemory: f.MaxBlobMemory << 20, Dir: dir, MaxDisk: f.MaxBlobDisk << 20, Logger: logger,
	})
	switch {
	case err == nil:
		return store, nil
	case errors.Is(err, blob.ErrInUse) && f.BlobDir == "":
		return nil, fmt.Errorf("--checkpoint-dir %s: %w: stop that client, choose another folder, or join with --ephemeral", checkpointDir, err)
	case f.BlobDir == "" && dir != "":
		return nil, fmt.Errorf("share the model from --checkpoint-dir %s: %w; choose another folder, or set --blob-dir", checkpointDir, err)
	default:
		return nil, fmt.Errorf("%w; choose another folder with --blob-dir", err)
	}
}

package invite

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// chainScheme is the URL scheme of every link to a run on a chain.
	chainScheme = "psyche+solana"

	maxNodes   = 3   // nodes of the chain in one link
	maxAddress = 512 // bytes of a node's address
)

// maxChainSize is the maximum size in bytes of a link to a run on a chain, if every byte of its
// addresses is escaped.
const maxChainSize = len(chainScheme+"://") + 2*maxKey + 3*coordinator.MaxRunIDLength + len("/?authority=") + maxNodes*(len("&rpc=")+3*maxAddress)

// ChainLink is an invite link to a run on a chain. Program, authority and run ID determine its
// account, which only the program can write to:
//
//	psyche+solana://PROGRAM/RUN?authority=KEY&rpc=URL
type ChainLink struct {
	Program   identity.ID // program that hosts the run
	RunID     string
	Authority identity.ID // main authority, which created the run
	RPC       []string    // http and https addresses of 1 to 3 nodes, whose answers the client compares
}

// Public returns the node addresses that cannot contain a customer's access key: no path, no query and
// no user name before an @. A public link must contain only such addresses.
func Public(nodes []string) (public []string) {
	for _, address := range nodes {
		at, err := url.Parse(address)
		if err == nil && at.User == nil && strings.Trim(at.Path, "/") == "" && at.RawQuery == "" && at.Fragment == "" && len(public) < maxNodes {
			public = append(public, address)
		}
	}
	return public
}

// IsChain reports whether text looks like a link to a run on a chain.
func IsChain(text string) bool {
	return strings.HasPrefix(unquote(strings.TrimSpace(text)), chainScheme+"://")
}

// String returns the link. ParseChain parses it if Check returns nil.
func (l ChainLink) String() string {
	text := fmt.Sprintf("%s://%s/%s?authority=%s", chainScheme, l.Program, escape(l.RunID), l.Authority)
	for _, address := range l.RPC {
		text += "&rpc=" + escape(address)
	}
	return text
}

// ParseChain parses a link to a run on a chain, with or without the quotes of a shell. Its errors
// match errLink.
func ParseChain(text string) (ChainLink, error) {
	l, err := parseChain(unquote(strings.TrimSpace(text)))
	if err != nil {
		return ChainLink{}, fmt.Errorf("%w: %w; ask for the whole link again, and put it in quotes: '…'", errLink, err)
	}
	return l, nil
}

func parseChain(text string) (l ChainLink, err error) {
	if len(text) > maxChainSize {
		return l, fmt.Errorf("%d bytes, want at most %d", len(text), maxChainSize)
	}
	rest, ok := strings.CutPrefix(text, chainScheme+"://")
	if !ok {
		return l, fmt.Errorf("starts with %q, want %s://PROGRAM/RUN?authority=…&rpc=…, as psyche run invite prints it", beginning(text), chainScheme)
	}
	place, query, _ := strings.Cut(rest, "?")
	program, name, _ := strings.Cut(place, "/")
	if l.Program, err = parseKey(program); err != nil {
		return l, fmt.Errorf("program: %w", err)
	}
	if l.RunID, err = parseName(name); err != nil {
		return l, err
	}
	authorities := 0
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "" && query == "":
		case name == "authority":
			authorities++
			if l.Authority, err = parseKey(value); err != nil {
				return l, fmt.Errorf("authority: %w", err)
			}
		case name == "rpc":
			address, err := url.PathUnescape(value)
			if err != nil || escape(address) != value {
				return l, fmt.Errorf("node %q has a character that must be escaped, or an unnecessary escape", beginning(value))
			}
			l.RPC = append(l.RPC, address)
		default:
			return l, fmt.Errorf("unknown part %q, want authority and rpc", beginning(part))
		}
	}
	if authorities != 1 {
		return l, fmt.Errorf("%d authorities, want 1", authorities)
	}
	return l, l.Check()
}

// Check returns the reason why a client could not join with the link, or nil.
func (l ChainLink) Check() error {
	switch {
	case l.RunID == "" || len(l.RunID) > coordinator.MaxRunIDLength:
		return fmt.Errorf("run id %q has %d bytes, want 1 to %d", l.RunID, len(l.RunID), coordinator.MaxRunIDLength)
	case l.Program == identity.ID{}:
		return errors.New("program is zero")
	case l.Authority == identity.ID{}:
		return errors.New("authority is zero, want the main authority of the run")
	case len(l.RPC) == 0 || len(l.RPC) > maxNodes:
		return fmt.Errorf("%d nodes (rpc=…), want 1 to %d; quote the link, because a shell cuts it at the &", len(l.RPC), maxNodes)
	}
	for _, address := range l.RPC {
		parsed, err := url.Parse(address)
		if strings.Contains(address, "@") && (err != nil || parsed.User != nil) { // the message must not repeat a password
			return errors.New("the address of a node contains a name or password before an @, which all holders of the link would read")
		}
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || strings.ContainsAny(address, ", ") || len(address) > maxAddress {
			return fmt.Errorf("node %q is not http://HOST:PORT or https://HOST/PATH of up to %d bytes", beginning(address), maxAddress)
		}
	}
	return nil
}

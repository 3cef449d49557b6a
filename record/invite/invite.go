package invite

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// Scheme is the URL scheme of every link.
	Scheme = "psyche"
	// defaultPort is the port of a link that names none.
	defaultPort = 39405
	// maxSize is the maximum size of a link in bytes, if every character of the longest run ID is
	// escaped.
	maxSize = len(Scheme+"://") + maxHost + len("[]:65535/") + 3*coordinator.MaxRunIDLength + len("?key=&genesis=") + maxKey + hashDigits

	maxHost    = 253 // bytes of a DNS name
	maxKey     = 44  // digits of a key in base58
	hashDigits = 64
)

// errLink means that a text is not a link to a run.
var errLink = errors.New("not a link to a run")

// Link contains the location of a run, and the keys that prove its identity.
type Link struct {
	Host  string // name or IP address
	Port  uint16
	RunID string
	Key   identity.ID // of the server
	Run   [32]byte    // hash of the run
}

// Addr returns the address of the server, host:port.
func (l Link) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))) }

// Genesis returns the hash of the run in hexadecimal, as flags and displays use it.
func (l Link) Genesis() string { return hex.EncodeToString(l.Run[:]) }

// String returns the link. Parse parses it if Check returns nil.
func (l Link) String() string {
	return fmt.Sprintf("%s://%s/%s?key=%s&genesis=%s", Scheme, l.Addr(), escape(l.RunID), l.Key, l.Genesis())
}

// ForShell returns the link quoted for a shell, in which ? and & have a meaning.
func (l Link) ForShell() string { return "'" + l.String() + "'" }

// Parse parses a link, with or without the quotes of a shell. Its errors match errLink.
func Parse(text string) (Link, error) {
	l, err := parse(unquote(strings.TrimSpace(text)))
	if err != nil {
		return Link{}, fmt.Errorf("%w: %w; ask for the whole link again, and put it in quotes: '…'", errLink, err)
	}
	return l, nil
}

func parse(text string) (Link, error) {
	if len(text) > maxSize {
		return Link{}, fmt.Errorf("%d bytes, want at most %d", len(text), maxSize)
	}
	rest, ok := strings.CutPrefix(text, Scheme+"://")
	if !ok {
		return Link{}, fmt.Errorf("starts with %q, want %s://HOST:PORT/RUN?key=…&genesis=…, as psyche run invite prints it", beginning(text), Scheme)
	}
	place, query, _ := strings.Cut(rest, "?")
	address, name, _ := strings.Cut(place, "/")
	var l Link
	var err error
	if l.Host, l.Port, err = ParseAddress(address); err != nil {
		return Link{}, err
	}
	if l.RunID, err = parseName(name); err != nil {
		return Link{}, err
	}
	if err := l.parseProof(query); err != nil {
		return Link{}, err
	}
	return l, l.Check()
}

// Check returns the reason why a client could not join with the link, or nil.
func (l Link) Check() error {
	switch {
	case l.RunID == "" || len(l.RunID) > coordinator.MaxRunIDLength:
		return fmt.Errorf("run id %q has %d bytes, want 1 to %d", l.RunID, len(l.RunID), coordinator.MaxRunIDLength)
	case l.Port == 0:
		return errors.New("port is 0, want 1 to 65535")
	case l.Key == identity.ID{}:
		return errors.New("key is zero, want the server's key")
	case l.Run == [32]byte{}:
		return errors.New("genesis is zero, want the hash of the run")
	}
	return checkHost(l.Host)
}

// unquote removes shell quotes, which some programs keep.
func unquote(text string) string {
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// beginning returns the start of a text for a message.
func beginning(text string) string {
	const shown = 24
	if len(text) > shown {
		return text[:shown] + "…"
	}
	return text
}

// ParseAddress parses HOST, HOST:PORT or [IPv6]:PORT as in a link. The default port is defaultPort.
func ParseAddress(address string) (host string, port uint16, err error) {
	if strings.Contains(address, "@") {
		return "", 0, errors.New("the address contains an @, want HOST:PORT without a name or password")
	}
	host, digits, err := net.SplitHostPort(address)
	if err != nil { // no port, or too many colons
		host, digits = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"), strconv.Itoa(defaultPort)
		if literal := "[" + host + "]"; strings.Contains(host, ":") != (address == literal) {
			return "", 0, fmt.Errorf("address %q is not HOST:PORT, or [IPv6]:PORT", address)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return "", 0, fmt.Errorf("port is %q, want 1 to 65535", digits)
	}
	return host, uint16(n), checkHost(host)
}

// checkHost accepts an IP address, or a name of letters, digits, hyphens and dots.
func checkHost(host string) error {
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		if address.IsUnspecified() {
			return fmt.Errorf("host %s, want the name or address of the server", host)
		}
		return nil
	}
	if host == "" || len(host) > maxHost {
		return fmt.Errorf("host %q has %d bytes, want 1 to %d", beginning(host), len(host), maxHost)
	}
	for _, c := range []byte(host) {
		if letter := c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return fmt.Errorf("host %q contains %q, want a name or an IP address", beginning(host), c)
		}
	}
	return nil
}

// parseName parses the run ID.
func parseName(escaped string) (string, error) {
	if escaped == "" {
		return "", errors.New("run id is missing, want /RUN after the address")
	}
	name, err := url.PathUnescape(escaped)
	if err != nil || escape(name) != escaped {
		return "", fmt.Errorf("run id %q has a character that must be escaped, or an unnecessary escape", escaped)
	}
	return name, nil
}

// escape returns the form of a run ID in a link. It escapes all characters except letters, digits
// and - . _ ~, so that a shell or a person who copies the link does not change it.
func escape(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

// parseProof parses the key and the genesis hash, which the server must prove.
func (l *Link) parseProof(query string) error {
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(query, "&") {
		if part == "" && query == "" {
			break
		}
		name, value, _ := strings.Cut(part, "=")
		if seen[name] {
			return fmt.Errorf("%s occurs twice", name)
		}
		seen[name] = true
		var err error
		switch name {
		case "key":
			l.Key, err = parseKey(value)
		case "genesis":
			l.Run, err = parseHash(value)
		default:
			err = fmt.Errorf("unknown part %q, want key and genesis", beginning(part))
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !seen["key"]:
		return errors.New("the server's key is missing (?key=…)")
	case !seen["genesis"]:
		return errors.New("the run's hash is missing (&genesis=…); quote the link, because a shell cuts it at the &")
	}
	return nil
}

func parseKey(text string) (identity.ID, error) {
	id, err := identity.ID{}, error(nil)
	if len(text) <= maxKey {
		id, err = identity.ParseID(text)
	}
	if err != nil || id.String() != text {
		return id, fmt.Errorf("key is %q, want 32 bytes in base58", beginning(text))
	}
	return id, nil
}

func parseHash(text string) (hash [32]byte, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(hash) || hex.EncodeToString(raw) != text {
		return hash, fmt.Errorf("genesis is %q, want %d hexadecimal digits in lower case, found %d characters", beginning(text), hashDigits, len(text))
	}
	return [32]byte(raw), nil
}

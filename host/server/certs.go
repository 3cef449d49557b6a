package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/follow"
)

const (
	certsMagic  = "psychecert/1\n"
	maxLinks    = 256 // certificates that a run keeps; a new certificate replaces superfluous ones
	maxBegun    = 4   // epochs with an incomplete certificate
	maxCertFile = 64 << 20
)

// link is a certified epoch that newcomers may start from or pass through. The members of each link
// certify the next. The first link is the run's first epoch, which newcomers reach by replay.
type link struct {
	cert   follow.Certificate
	offset int64 // journal offset after the record that started the epoch
}

// begun is an epoch whose certificate is still collecting signatures.
type begun struct {
	link
	state   []byte
	mayGive map[identity.ID]bool // members of this epoch and the previous one
}

// certs holds the certificates of a run. It is safe for concurrent use.
type certs struct {
	run  [32]byte
	path string // empty: not saved

	mu      sync.Mutex
	links   []link // ascending; replaced, never modified
	base    []byte // state at the newest link; nil if that is the first epoch
	open    []*begun
	members []identity.ID // of the newest epoch
}

// began registers a new epoch. The record that started the epoch is already on the disk.
func (c *certs) began(e follow.Epoch, offset int64, state []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.members
	c.members = e.Members
	l := link{follow.Certificate{Epoch: e}, offset}
	if len(c.links) == 0 {
		c.links = []link{l}
		return
	}
	b := &begun{link: l, state: state, mayGive: make(map[identity.ID]bool)}
	for _, id := range slices.Concat(before, e.Members) {
		b.mayGive[id] = true
	}
	c.open = append(c.open[max(0, len(c.open)-maxBegun+1):], b)
}

// sign adds a member's signature and reports whether the epoch is now certified.
func (c *certs) sign(id identity.ID, index uint64, signature [identity.SignatureSize]byte) (certified bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.open, func(b *begun) bool { return b.cert.Index == index })
	if at < 0 || !c.open[at].mayGive[id] {
		return false, nil // already certified, too old, or the key may not sign
	}
	b := c.open[at]
	if !b.cert.Verify(id, c.run, signature) {
		return false, fmt.Errorf("the signature of epoch %d does not verify", b.cert.Number)
	}
	delete(b.mayGive, id)
	b.cert.Signatures = append(b.cert.Signatures, follow.Signature{ID: id, Signature: signature})
	return c.certify(), nil
}

// certify adds the newest open epoch that enough members of the newest link have signed. It drops
// the last links if an earlier link certifies the epoch without them. It reports whether it added
// an epoch.
func (c *certs) certify() bool {
	for at, b := range slices.Backward(c.open) {
		links := c.links
		for len(links) > 1 && certifies(links[len(links)-2], b.cert) {
			links = links[:len(links)-1]
		}
		if len(links) >= maxLinks || !certifies(links[len(links)-1], b.cert) {
			continue
		}
		made := b.link
		made.cert.Signatures = slices.Clone(made.cert.Signatures)
		c.links, c.base = append(slices.Clone(links), made), b.state
		c.open = slices.Clone(c.open[at+1:])
		return true
	}
	return false
}

// certifies reports whether c has signatures of enough members of an earlier epoch, the link from.
func certifies(from link, c follow.Certificate) bool {
	return follow.Suffices(c.SignedBy(from.cert.Members), len(from.cert.Members))
}

// way returns the path of a newcomer to the newest certified epoch, and the state there.
func (c *certs) way() ([]link, []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links, c.base
}

// save writes the certificates to their file atomically.
func (c *certs) save() error {
	if c.path == "" {
		return nil
	}
	links, base := c.way()
	b := []byte(certsMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(links)))
	for _, l := range links {
		b = binary.LittleEndian.AppendUint64(b, uint64(l.offset))
		cert := l.cert.AppendTo(nil)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(cert)))
		b = append(b, cert...)
	}
	b = append(b, base...)
	hash := sha256.Sum256(b)
	return atomicfile.Write(c.path, append(b, hash[:]...), 0o600)
}

var errCerts = errors.New("certificates cannot be used")

// decodeCerts parses the content of a certificate file.
func decodeCerts(content []byte) (links []link, base []byte, err error) {
	if len(content) < len(certsMagic)+4+sha256.Size || !bytes.HasPrefix(content, []byte(certsMagic)) {
		return nil, nil, fmt.Errorf("%w: the file has another version", errCerts)
	}
	body, hash := content[:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], hash) {
		return nil, nil, fmt.Errorf("%w: the file is damaged", errCerts)
	}
	rest := body[len(certsMagic):]
	count := binary.LittleEndian.Uint32(rest)
	rest = rest[4:]
	if count == 0 || count > maxLinks {
		return nil, nil, fmt.Errorf("%w: %d certificates, want 1 to %d", errCerts, count, maxLinks)
	}
	for range count {
		if len(rest) < 12 {
			return nil, nil, fmt.Errorf("%w: the file is truncated", errCerts)
		}
		offset, size := binary.LittleEndian.Uint64(rest), int64(binary.LittleEndian.Uint32(rest[8:]))
		if rest = rest[12:]; size > int64(len(rest)) || offset > 1<<62 {
			return nil, nil, fmt.Errorf("%w: the file is truncated", errCerts)
		}
		cert, err := follow.DecodeCertificate(rest[:size])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errCerts, err)
		}
		links, rest = append(links, link{cert, int64(offset)}), rest[size:]
	}
	return links, rest, nil
}

// load reads the certificates of a run with an open journal, and verifies that they belong to the
// journal.
func (c *certs) load(s *store) error {
	info, err := os.Stat(c.path)
	if err != nil {
		return err
	}
	if info.Size() > maxCertFile {
		return fmt.Errorf("%w: the file has %d bytes, at most %d are allowed", errCerts, info.Size(), maxCertFile)
	}
	content, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	links, base, err := decodeCerts(content)
	if err != nil {
		return err
	}
	for _, l := range links[1:] { // newcomers reach the first link by replay
		var hash [sha256.Size]byte
		if _, err := s.journal.ReadAt(hash[:], l.offset-sha256.Size); err != nil || hash != l.cert.Hash || l.offset > s.journal.Size() {
			return fmt.Errorf("%w: epoch %d is not in the journal", errCerts, l.cert.Number)
		}
	}
	newest := links[len(links)-1].cert
	if len(links) > 1 && sha256.Sum256(base) != newest.State {
		return fmt.Errorf("%w: the state does not belong to epoch %d", errCerts, newest.Number)
	}
	c.links, c.base, c.members = links, base, newest.Members
	if len(base) == 0 {
		c.base = nil
	}
	return nil
}

package secure

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// protocolName is the ALPN name (RFC 7301). It keeps out programs with other protocols.
const protocolName = "psyche"

// Errors of this package. Retrying does not help.
var (
	// ErrWrongServer means that the host proved another ID than the pinned one.
	ErrWrongServer = errors.New("the server's key is not the expected key")
	// ErrServerChanged means that the host of a known address now has another ID.
	ErrServerChanged = errors.New("the key of the server has changed")
)

// ServerConfig returns the TLS configuration of a host: only version 1.3, with a self-signed
// certificate. The same key gives the same certificate.
func ServerConfig(key identity.Key) (*tls.Config, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: key.ID().String()},
		NotBefore:    time.Unix(0, 0).UTC(),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // no expiry (RFC 5280, 4.1.2.5)
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Private().Public(), key.Private())
	if err != nil {
		return nil, fmt.Errorf("make the server's certificate: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key.Private()}},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocolName},
		// A resumed session would save little, and tickets would be additional state.
		SessionTicketsDisabled: true,
	}, nil
}

// Client wraps the client's end of a connection. The handshake runs with the first read or write.
// It fails with the error of accept if accept rejects the host's ID. It also fails, after accept,
// if the host does not prove possession of the key. All data read from the connection therefore
// comes from the host whose ID was passed to accept.
func Client(socket net.Conn, accept func(identity.ID) error) *tls.Conn {
	return tls.Client(socket, &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocolName},
		// There is no certificate chain and no name to verify: the ID is verified instead.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := hostID(state)
			if err != nil {
				return err
			}
			return accept(id)
		},
	})
}

// hostID returns the ID that the other side has proved in a handshake.
func hostID(state tls.ConnectionState) (identity.ID, error) {
	if state.NegotiatedProtocol != protocolName || len(state.PeerCertificates) != 1 {
		return identity.ID{}, errors.New("the other side is not a server of runs")
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(public) != identity.IDSize {
		return identity.ID{}, errors.New("the server's certificate has no ed25519 key")
	}
	return identity.ID(public), nil
}

// Pin returns a function that accepts only the ID want.
func Pin(want identity.ID) func(identity.ID) error {
	return func(found identity.ID) error {
		if found != want {
			return fmt.Errorf("%w: found %s, want %s", ErrWrongServer, found, want)
		}
		return nil
	}
}

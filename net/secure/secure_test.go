package secure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
)

func key(n byte) identity.Key { return identity.FromSeed([identity.SeedSize]byte{n}) }

// handshake connects a client to a server with the configuration. It returns the client's error.
func handshake(t *testing.T, config *tls.Config, accept func(identity.ID) error) error {
	t.Helper()
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		server := tls.Server(far, config)
		_ = server.SetDeadline(time.Now().Add(10 * time.Second))
		if server.Handshake() == nil {
			_, _ = io.Copy(server, server)
		}
		_ = far.Close()
	}()
	client := Client(near, accept)
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	err := client.Handshake()
	if err == nil {
		var echo [5]byte
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, echo[:]); err != nil || string(echo[:]) != "hello" {
			t.Fatalf("echo %q, %v", echo, err)
		}
	}
	_ = near.Close()
	<-served
	return err
}

func serverConfig(t *testing.T, n byte) *tls.Config {
	t.Helper()
	config, err := ServerConfig(key(n))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestPin(t *testing.T) {
	if err := handshake(t, serverConfig(t, 1), Pin(key(1).ID())); err != nil {
		t.Fatal(err)
	}
	err := handshake(t, serverConfig(t, 2), Pin(key(1).ID()))
	if !errors.Is(err, ErrWrongServer) || !strings.Contains(err.Error(), key(1).ID().String()) || !strings.Contains(err.Error(), key(2).ID().String()) {
		t.Fatalf("error %v", err)
	}
}

// TestStolenCertificate checks that a server cannot use the certificate of a key that it does not
// have.
func TestStolenCertificate(t *testing.T) {
	config := serverConfig(t, 1)
	config.Certificates[0].PrivateKey = key(2).Private()
	if err := handshake(t, config, Pin(key(1).ID())); err == nil || errors.Is(err, ErrWrongServer) {
		t.Fatalf("error %v, want a handshake error", err)
	}
}

func TestOtherServersAreRefused(t *testing.T) {
	all := func(identity.ID) error { return nil }
	old := serverConfig(t, 1)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	nameless := serverConfig(t, 1)
	nameless.NextProtos = nil
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	other := serverConfig(t, 1)
	other.Certificates = []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}
	for name, config := range map[string]*tls.Config{"TLS 1.2": old, "another protocol": nameless, "another kind of key": other} {
		if err := handshake(t, config, all); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestKnownServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "known_servers")
	var shown []string
	known := &KnownServers{Path: path, FirstUse: func(address string, id identity.ID) { shown = append(shown, address+" "+id.String()) }}
	for range 2 {
		if err := known.Check("host:1")(key(1).ID()); err != nil {
			t.Fatal(err)
		}
	}
	if err := known.Check("host:2")(key(2).ID()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"host:1 " + key(1).ID().String(), "host:2 " + key(2).ID().String()}; strings.Join(shown, "|") != strings.Join(want, "|") {
		t.Fatalf("shown %q, want %q", shown, want)
	}
	// A second process reads the same file and refuses a different key.
	again := &KnownServers{Path: path}
	if err := again.Check("host:2")(key(2).ID()); err != nil {
		t.Fatal(err)
	}
	err := again.Check("host:2")(key(3).ID())
	if !errors.Is(err, ErrServerChanged) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "another key", err)
}

// TestKnownServersOfManyPrograms checks many programs that connect to a new server at once. The
// server gets one line, and no program accepts a different key.
func TestKnownServersOfManyPrograms(t *testing.T) {
	if !filelock.Supported {
		t.Skip("this system has no locks")
	}
	path := filepath.Join(t.TempDir(), "known_servers")
	const programs = 16
	var agreed atomic.Int32
	var group sync.WaitGroup
	for i := range programs {
		group.Go(func() {
			err := (&KnownServers{Path: path}).Check("host:1")(key(byte(1 + i%2)).ID())
			switch {
			case err == nil:
				agreed.Add(1)
			case !errors.Is(err, ErrServerChanged):
				t.Error(err)
			}
		})
	}
	group.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines != 1 || agreed.Load() != programs/2 {
		t.Errorf("%d of %d programs trust their server, %d lines:\n%s", agreed.Load(), programs, lines, text)
	}
}

func TestKnownServersFileIsChecked(t *testing.T) {
	id := key(1).ID().String()
	for _, test := range []struct{ name, text string }{
		{"one word", "host:1\n"},
		{"bad key", "# comment\n\nhost:1 abc\n"},
		{"three words", "host:1 " + id + " x\n"},
		{"no text", strings.Repeat("x", 200_000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "known")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := (&KnownServers{Path: path}).Check("host:9")(key(1).ID())
			golden.Message(t, "error", err)
			if text, _ := os.ReadFile(path); string(text) != test.text {
				t.Fatal("the file was changed")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "known")
	if err := os.WriteFile(path, []byte("host:1 "+id), 0o600); err != nil { // without a newline
		t.Fatal(err)
	}
	known := &KnownServers{Path: path}
	if err := errors.Join(known.Check("host:2")(key(2).ID()), known.Check("host:1")(key(1).ID()), known.Check("host:2")(key(2).ID())); err != nil {
		t.Fatal(err)
	}
	if err := known.Check("a b")(key(1).ID()); err == nil {
		t.Fatal("an address with a space was added")
	}
}

func TestChoose(t *testing.T) {
	t.Setenv(knownServersVariable, "/from/environment")
	if id, known, err := Choose(key(1).ID().String(), "file", nil); err != nil || known != nil || id != key(1).ID() {
		t.Errorf("a key: %v, %v, %v", id, known, err)
	}
	if id, known, err := Choose("", "file", nil); err != nil || known.Path != "file" || id != (identity.ID{}) {
		t.Errorf("a file: %v, %v, %v", id, known, err)
	}
	if _, known, err := Choose("", "", nil); err != nil || known.Path != "/from/environment" {
		t.Errorf("nothing: %v, %v", known, err)
	}
	if _, _, err := Choose("abc", "", nil); err == nil {
		t.Error("a bad key was accepted")
	}
}

func FuzzKnownServers(f *testing.F) {
	f.Add("host:1 "+key(1).ID().String()+"\n", "host:1")
	f.Add("# x\n\nhost:1 1\n", "host:1")
	fuzztest.Run(f, func(t *testing.T, text, address string) {
		id, line, err := findKnown(strings.NewReader(text), "file", address)
		if line > 0 && (err != nil || !strings.Contains(text, id.String())) {
			t.Fatalf("line %d, %v", line, err)
		}
	})
}
